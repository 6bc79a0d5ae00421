#!/usr/bin/env bash
# Comments on a pull request with REPORT, or replaces the comment of an earlier run, which the first line identifies.
set -euo pipefail
comments="repos/$REPOSITORY/issues/$NUMBER/comments"
earlier=$(gh api --paginate "$comments" --jq '.[] | select(.body | startswith("<!-- outscaler -->")) | .id' | head -n 1)
if [ -n "$earlier" ]; then
  gh api --method PATCH "repos/$REPOSITORY/issues/comments/$earlier" --field "body=@$REPORT" --silent
else
  gh api --method POST "$comments" --field "body=@$REPORT" --silent
fi
