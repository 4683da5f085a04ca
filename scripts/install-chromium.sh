#!/bin/sh
# Install Debian's Chromium when this user may; otherwise say what is missing and go on.
if [ "$(id -u)" = 0 ]; then sudo=""; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo="sudo"; else
  echo "chromium is missing and may not be installed by this user: browser tests will be skipped" >&2
  exit 0
fi
command -v apt-get >/dev/null || { echo "chromium is missing and there is no apt-get: browser tests will be skipped" >&2; exit 0; }
echo "installing chromium for the browser tests" >&2
$sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 \
  || echo "chromium could not be installed: browser tests will be skipped" >&2
