// SPDX-License-Identifier: Apache-2.0
#include "ops/recompute.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sf::ops {
namespace {

struct Held : torch::CustomClassHolder {
  explicit Held(TensorFunction given) : f(std::move(given)) {}
  TensorFunction f;
};

struct Recompute : torch::autograd::Function<Recompute> {
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;

  static List forward(Context* context, at::TensorList inputs, TensorFunction f) {
    List given = inputs.vec();
    List outputs = f(given);
    context->save_for_backward(std::move(given));
    context->saved_data["f"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(std::move(f)));
    return outputs;
  }

  static List backward(Context* context, List gradients) {
    List leaves, wanted, roots, seeds;
    std::vector<size_t> places;
    for (const at::Tensor& input : context->get_saved_variables()) {
      leaves.push_back(input.detach());
      if (!context->needs_input_grad(leaves.size() - 1)) continue;
      leaves.back().set_requires_grad(true);
      wanted.push_back(leaves.back());
      places.push_back(leaves.size() - 1);
    }
    List result(leaves.size() + 1);  // the function itself has none
    c10::AutoGradMode graph(true);
    List outputs = static_cast<Held*>(context->saved_data["f"].toCapsule().get())->f(leaves);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      seeds.push_back(gradients[i]);
    }
    if (roots.empty() || wanted.empty()) return result;
    List found = torch::autograd::grad(roots, wanted, seeds, false, false, true);
    for (size_t i = 0; i < found.size(); ++i) result[places[i]] = found[i];
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recompute(TensorFunction f, const std::vector<at::Tensor>& inputs) {
  return Recompute::apply(at::TensorList(inputs), std::move(f));  // only a list is taken apart into variables
}

}  // namespace sf::ops
