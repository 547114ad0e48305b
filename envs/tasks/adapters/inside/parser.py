# Runs the dataset's own parser, above, on what the tests printed, and prints what it finds as printed.awk does.
if __name__ == "__main__":
    import sys

    printing, sys.stdout = sys.stdout, sys.stderr
    found = parser(sys.stdin.buffer.read().decode("utf-8", "replace"))  # noqa: F821
    for name, status in found.items():
        word = next((word for word in ("pass", "skip") if word in status.lower()), "fail")
        if "\n" not in name:
            line = "%s\t0\t%s\n" % ({"pass": "passed", "skip": "skipped", "fail": "failed"}[word], name)
            printing.buffer.write(line.encode("utf-8", "replace"))
