# Whether each listed test was seen to pass: awk -v ended=STATUS -v repeats=0 -f verdict.awk LIST RESULTS > ctrf.json.
# LIST has a name on each line, RESULTS what printed.awk prints. ended: the exit status of the tests' command.
# repeats: the runner may use one name for several tests, which must all pass. Exits with 1 where something is missing.
function plain(name) { # durations differ from run to run; some lists have them
    sub(/[ \t]*[[(][ \t]*[0-9]+(\.[0-9]+)?[ \t]*(ms|s|sec|msec)[ \t]*[])]$/, "", name)
    sub(/[ \t]+in[ \t]+[0-9]+(\.[0-9]+)?[ \t]*m?sec$/, "", name)
    return name
}

function quoted(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    gsub(/[\001-\037]/, " ", text)
    return "\"" text "\""
}

BEGIN { FS = "\t" }

FILENAME == ARGV[1] { listed[++count] = $0; next }

{
    name = $0
    sub(/^[^\t]*\t[^\t]*\t/, "", name)
    if (!repeats && (name, $2) in where) twice[plain(name)] = 1
    where[name, $2] = 1
    name = plain(name)
    if (name in status && status[name] != $1) $1 = "differs"
    status[name] = $1
    if ($1 != "passed" && $1 != "skipped") failures++
}

END {
    printf "{\"results\": {\"tests\": ["
    for (i = 1; i <= count; i++) {
        name = plain(listed[i])
        found = !(name in status) ? "missing" : name in twice ? "printed twice" : status[name]
        word = found ~ /^(passed|skipped)$/ ? found : found == "missing" ? "other" : "failed"
        printf "%s\n{\"name\": %s, \"status\": \"%s\"}", (i == 1 ? "" : ","), quoted(listed[i]), word
        if (found != "passed" && ++bad <= 5) print "not seen to pass (" found "): " listed[i] > "/dev/stderr"
    }
    print "\n]}}"
    if (ended >= 124 && ended != 128) problem = "the tests did not come to their end"
    else if (ended && !failures) problem = "no failure was printed"
    if (problem) print "exit status " ended ", yet " problem > "/dev/stderr"
    exit bad || problem != ""
}
