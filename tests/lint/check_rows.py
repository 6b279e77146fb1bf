#!/usr/bin/env python3
"""A command is a row: program, help, man page, completions, cases. check_rows.py BINDIR COMMAND...

Help: exit 0, stdout only, at most 80 columns, two examples a verb, fast. Misuse: stderr only, exit 64. The man page names
the options of --help, both ways, verb by verb. Completions and shardforge.toml(5) are what the programs make now
(SF_ACCEPT=1 rewrites them and then reports SKIP). Every setting is read by a verb; every exit status and every variable
of the environment is in shardforge(7).
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELP_LIMIT_S = 0.020
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
COMPLETIONS = {"bash": "{0}.bash", "zsh": "_{0}", "fish": "{0}.fish"}
ACCEPT = os.environ.get("SF_ACCEPT") == "1"

faults = []
accepted = []


def fault(text):
    faults.append(text)


def call(*words):
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def fresh(path, wanted):
    name = path.relative_to(ROOT)
    if path.exists() and path.read_text() == wanted:
        return
    if ACCEPT:
        path.write_text(wanted)
        accepted.append(name)
    else:
        fault(f"{name}: not what the programs make now; run the test with SF_ACCEPT=1 and look at the difference")


def check_help(program, words):
    shown = " ".join([program.name, *words])
    done = call(program, *words, "--help")
    if done.returncode != 0 or done.stderr or not done.stdout:
        fault(f"{shown} --help: status {done.returncode}, stderr {done.stderr!r}")
    for line in done.stdout.splitlines():
        if len(line) > 80:
            fault(f"{shown} --help: {len(line)} columns: {line}")
    if done.stdout.count("\n  $ ") < 2:
        fault(f"{shown} --help: fewer than two examples")
    wrong = call(program, *words, "--no-such-option")
    if wrong.returncode != 64 or wrong.stdout or "unknown option --no-such-option" not in wrong.stderr:
        fault(f"{shown} --no-such-option: status {wrong.returncode}, stdout {wrong.stdout!r}, stderr {wrong.stderr!r}")


def check_examples(bindir, record):
    """Every command of every example parses, inside man/examples."""
    for verb in record["verbs"]:
        if len(verb["examples"]) < 2:
            fault(f"{record['name']} {verb['name']}: fewer than two examples in the table")
        for example in verb["examples"]:
            for part in re.split(r"\s(?:\||&&)\s", example):
                words = shlex.split(part)
                if not words[0].startswith("sf-"):
                    continue
                done = subprocess.run([bindir / words[0], *words[1:], "--print-config"], capture_output=True, text=True,
                                      stdin=subprocess.DEVNULL, cwd=ROOT / "man/examples", check=False)
                if done.returncode != 0:
                    fault(f"example '{part}': status {done.returncode}, {done.stderr}")


def check_speed(program):
    """Processor time, so that a busy machine does not decide; --help must never load LibTorch (seconds)."""
    best = 1.0
    for _ in range(10):
        child = subprocess.Popen([program, "--help"], stdout=subprocess.DEVNULL)
        usage = os.wait4(child.pid, 0)[2]
        child.returncode = 0
        best = min(best, usage.ru_utime + usage.ru_stime)
        if best < HELP_LIMIT_S:
            return
    fault(f"{program.name} --help: {best * 1000:.1f} ms of processor time at best, {HELP_LIMIT_S * 1000:.0f} allowed")


def man_options(text):
    """Options by subsection: {'eagle3': {'draft', ...}, 'Options of all verbs': {...}}"""
    found = {}
    section = None
    for line in text.splitlines():
        if line.startswith(".Ss "):
            section = line[4:]
            found[section] = set()
        elif line.startswith(".Sh "):
            section = None
        elif line.startswith(".It Fl ") and section:
            found[section] |= set(re.findall(r"Fl Fl ([a-z][a-z-]*)", line))
    return found


def check_man(program, record):
    path = ROOT / "man" / f"{program.name}.1"
    if not path.exists():
        fault(f"man/{program.name}.1 is missing")
        return
    text = path.read_text()
    sections = re.findall(r"^\.Sh (.*)$", text, re.M)
    for wanted in SECTIONS:
        if wanted not in sections:
            fault(f"{path.name}: section {wanted} is missing")
    found = man_options(text)
    common = found.pop("Options of all verbs", set())
    verbs = {verb["name"]: {option["name"] for option in verb["options"]} for verb in record["verbs"]}
    for name in sorted(set(found) ^ set(verbs)):
        fault(f"{path.name}: verb {name} is in the page or in the program, not in both")
    for name in sorted(set(found) & set(verbs)):
        for option in sorted((found[name] | common) ^ verbs[name]):
            fault(f"{path.name}: {name} --{option} is in the page or in --help, not in both")


def check_completions(program):
    for shell, pattern in COMPLETIONS.items():
        made = call(program, "--completion", shell)
        if made.returncode != 0:
            fault(f"{program.name} --completion {shell}: status {made.returncode}")
            continue
        fresh(ROOT / "bin" / program.name / pattern.format(program.name), made.stdout)
    parsed = call("bash", "-n", ROOT / "bin" / program.name / f"{program.name}.bash")
    if parsed.returncode != 0:
        fault(f"{program.name}.bash: {parsed.stderr}")


def check_row(program):
    check_help(program, [])
    version = call(program, "--version")
    if not re.fullmatch(rf"{program.name} \(ShardForge\) \d+\.\d+\.\d+\n", version.stdout) or version.stderr:
        fault(f"{program.name} --version: {version.stdout!r} {version.stderr!r}")
    json.loads(call(program, "--build-info").stdout)
    record = json.loads(call(program, "--help", "--format", "json").stdout)
    for verb in record["verbs"]:
        check_help(program, [verb["name"]])
    check_examples(program.parent, record)
    check_speed(program)
    check_man(program, record)
    check_completions(program)
    if not list((ROOT / "tests/cli" / program.name).glob("*.sh")):
        fault(f"tests/cli/{program.name}: no cases")
    return record


def check_settings(records):
    read = {name for record in records for verb in record["verbs"] for name in verb["settings"]}
    for key in records[0]["keys"]:
        if key["name"] not in read and key["name"].split(".")[0] not in read:
            fault(f"setting {key['name']} is read by no verb")
    page = subprocess.run([sys.executable, ROOT / "man/make_settings_page.py"], input=json.dumps(records[0]),
                          capture_output=True, text=True, check=True)
    fresh(ROOT / "man/shardforge.toml.5", page.stdout)


def check_family_page():
    text = (ROOT / "man/shardforge.7").read_text()
    for status in re.findall(r"^  k\w+ = (\d+),", (ROOT / "libcore/base/error.h").read_text(), re.M):
        if f"\n.It {status}\n" not in text:
            fault(f"shardforge.7: exit status {status} is missing")
    listed = set(re.findall(r"^\.It Ev (.*)$", text, re.M))
    listed = {name.strip() for line in listed for name in line.split(",")}
    used = set()
    for path in [*(ROOT / "libcore/app").glob("*.cpp"), ROOT / "libcore/base/fault.cpp", ROOT / "libcore/base/rank_env.cpp"]:
        used |= set(re.findall(r'"(SF_[A-Z]+|NO_COLOR|TERM|SLURM_[A-Z_]+|RANK|WORLD_SIZE|LOCAL_[A-Z_]+|MASTER_[A-Z]+|TORCHELASTIC_[A-Z_]+)"', path.read_text()))
    for name in sorted(used - listed):
        fault(f"shardforge.7: the environment variable {name} is read but not listed")


def check_mandoc():
    for path in sorted((ROOT / "man").glob("*.[1-8]")):
        done = call("mandoc", "-T", "lint", "-W", "warning", path)
        if done.stdout:
            fault(done.stdout.strip())


def main():
    bindir = pathlib.Path(sys.argv[1]).resolve()
    records = [check_row(bindir / name) for name in sys.argv[2:]]
    check_settings(records)
    check_family_page()
    check_mandoc()
    for name in accepted:
        print(f"rewritten: {name}")
    print("\n".join(faults) if faults else f"rows: {len(records)} commands complete")
    return 1 if faults else 77 if accepted else 0


if __name__ == "__main__":
    sys.exit(main())
