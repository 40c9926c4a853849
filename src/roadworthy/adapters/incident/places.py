"""Which host or pod a file is of, by the layouts in which tools lay them down; the lines' own word comes first."""

from __future__ import annotations

import re

from roadworthy.diagnose.anatomy import host_of_file

LAYOUTS = (
    re.compile(r"(?:^|/)(?:hosts|nodes)/(?P<place>[^/]+)/"),
    re.compile(r"(?:^|/)pods/[^/_]+_(?P<place>[^/_]+)_[0-9a-f-]{8,}/"),  # /var/log/pods of a node
    re.compile(r"(?:^|/)containers/(?P<place>[^/_]+)_[^/_]+_[^/]+-[0-9a-f]{64}\.log"),  # /var/log/containers
    re.compile(r"(?:^|/)namespaces/[^/]+/pods/(?P<place>[^/]+)/"),  # must-gather
    re.compile(r"(?:^|/)pods/[^/]+/(?P<place>[^/]+)/"),  # what we fetch ourselves
    re.compile(r"(?:^|/)sosreport-(?P<place>[A-Za-z0-9][\w.-]*?)(?:-\d{6,})?-\d{4}-\d\d-\d\d-[a-z]{7}(?:/|$)"),
    re.compile(r"(?:^|/)sosreport-(?P<place>[A-Za-z0-9][\w.]*)[^/]*/"),
)


def place_of(path: str) -> str | None:
    """The host or pod that ``path`` tells, None when it tells none."""
    for layout in LAYOUTS:
        if found := layout.search(path.replace("\\", "/")):
            return found["place"]
    return host_of_file(path)
