python3 "$SF_SOURCE/tests/support/make_tiny_model.py" model >/dev/null
printf '{%% for m in messages %%}\n{%% include "other" %%}{%% endfor %%}' >model/chat_template.jinja
sf-init model model -o out
