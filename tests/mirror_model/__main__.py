"""`python -m tests.mirror_model`: explore the scenarios, show what goes wrong without a rule."""

from __future__ import annotations

import argparse
import sys
import time

from tests.mirror_model.explore import explore
from tests.mirror_model.scenarios import FROZEN, NEEDED, SOUND, Scenario, without
from tests.mirror_model.world import RULES


def report(name: str, scenario: Scenario, *, sound: bool) -> bool:
    """Explore and report what was found. True when it is what was expected."""
    began = time.monotonic()
    found = explore(scenario.setting, scenario.kinds)
    verdict = f"{found.worlds} worlds, {found.complete} complete, {time.monotonic() - began:.1f} s"
    steps = "".join(f"\n  {number:3} {step}" for number, step in enumerate(found.story, start=1))
    end = f"\n      => {found.harm}" if found.harm else ""
    sys.stdout.write(f"{name}: log {scenario.setting.text}, {verdict}: {'harm' if end else 'sound'}{steps}{end}\n")
    sys.stdout.flush()
    return (found.harm is None) == sound and (not sound or found.handed_over > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mirror_model", description=__doc__)
    parser.add_argument("--without", choices=sorted(RULES), help="the shortest story of what goes wrong without a rule")
    options = parser.parse_args()
    if options.without:
        return 0 if report(f"without {options.without}", without(options.without), sound=False) else 1
    results = [report(f"without {rule}", without(rule), sound=False) for rule in NEEDED]
    results.append(report("a frozen process is thawed", FROZEN, sound=False))
    results += [report(f"sound, {name}", each, sound=True) for name, each in SOUND.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
