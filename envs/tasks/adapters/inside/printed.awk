# Reads what test runners print: awk -v forms="go cargo" -f printed.awk OUTPUT. Of each result it prints its status,
# the number of the section that it is in (a package, a test program: within one no test runs twice) and the test's
# name, with tabs between them. For any awk, in bytes: run it with LC_ALL=C.
BEGIN {
    count = split(forms, form, " ")
    for (i = 1; i <= count; i++) on[form[i]] = 1
    section = depth = indent = 0
    title = "None"
    PASSED = "passed"; FAILED = "failed"; SKIPPED = "skipped"
}

function seen(status, name) {
    gsub(/^[ \t]+|[ \t]+$/, "", name)
    if (name != "") printf "%s\t%d\t%s\n", status, section, name
}

function status_of(word) { # of the words and signs that runners have for it
    if (word ~ /^(PASS|PASSED|pass|passed|ok|OK|SUCCESS|\.|✓|✔)$/) return PASSED
    if (word ~ /^(SKIP|SKIPPED|skip|ignore|ignored.*|pending|O|S|○|◌|◦|⚪|↓|↩)$/) return SKIPPED
    return FAILED
}

function before(text, pattern) { return match(text, pattern) ? substr(text, 1, RSTART - 1) : text }

function after(text, pattern) { return match(text, pattern) ? substr(text, RSTART + RLENGTH) : text }

function last(text, part,    rest, i) { # what comes before the last `part`
    rest = ""
    while (i = index(text, part)) {
        rest = rest substr(text, 1, i - 1 + length(part))
        text = substr(text, i + length(part))
    }
    return substr(rest, 1, length(rest) - length(part))
}

function attribute(tag, name) {
    tag = " " tag
    if (!match(tag, "[ \t]" name "=\"[^\"]*\"")) return ""
    tag = substr(tag, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
    gsub(/&lt;/, "<", tag); gsub(/&gt;/, ">", tag); gsub(/&quot;/, "\"", tag); gsub(/&(apos|#39);/, "'", tag)
    gsub(/&amp;/, "\\&", tag)
    return tag
}

function junit_case(tag, status,    name, home) {
    name = attribute(tag, "name"); home = attribute(tag, "classname")
    if (home == "") seen(status, name)
    else if (on["junit-gradle"]) seen(status, name " (" home ")")
    else seen(status, home " " name)
}

{
    gsub(/\033\[[0-9;?]*[ -\/]*[@-~]/, "")
    sub(/\r+$/, "")
    raw = line = $0
    gsub(/^[ \t\r\f\v]+|[ \t\r\f\v]+$/, "", line)
}

on["go"] {
    if (line ~ /^--- (PASS|FAIL|SKIP): .+ \(.+\)$/) seen(status_of(substr(line, 5, 4)), last(substr(line, 11), " ("))
    if (raw ~ /^(ok|FAIL|\?) *\t/) section++
}

on["cargo"] {
    if (line ~ /^running [0-9]+ tests?$/) section++
    if (line ~ /^test .+ \.\.\. (ok|FAILED|ignored.*)$/)
        seen(status_of(after(line, " \\.\\.\\. ")), before(substr(line, 6), "[ \t]+\\.\\.\\. "))
}

on["jest"] && line ~ /^(✓|✕|○) / { seen(status_of(before(line, " ")), after(line, " ")) }

on["jest-json"] && line ~ /^\[(PASSED|FAILED)\] / { seen(status_of(substr(line, 2, 6)), substr(line, 10)) }

on["jest-files"] && raw ~ /^(PASS|FAIL) / {
    seen(status_of(substr(raw, 1, 4)), before(substr(raw, 6), "[ \t]\\([0-9.]+ ?m?s\\)"))
}

on["vitest"] && line ~ /^(✓|×|↓) / {
    name = after(line, " ")
    sub(/[ \t]([0-9]+[ \t]*m?s?|\[skipped\])$/, "", name)
    seen(status_of(before(line, " ")), name)
}

on["ticks"] && match(line, /^(✔|✓|✘|✖|✕|×|○|◌|◦|⚪|[0-9]+\))/) { # mocha, node --test and others
    sign = substr(line, 1, RLENGTH)
    name = substr(line, RLENGTH + 1)
    sub(/^[ \t]*\[[^]]*\]:/, "", name)
    sub(/^[ \t]*:/, "", name)
    sub(/[ \t]*\(?[ \t]*[0-9]+(\.[0-9]+)?[ \t]*m?s[ \t]*\)?[ \t]*$/, "", name)
    seen(status_of(sign), name)
}

on["tap"] && line ~ /^(not )?ok [0-9]+ ./ { seen(line ~ /^ok/ ? PASSED : FAILED, after(line, "ok [0-9]+ ")) }

on["karma"] && started == 1 { # names of suites by indentation, as swebench has them
    if (raw ~ /^SUMMARY:/) started = 2
    else if (match(raw, /^[ \t]*(✔|✖)[ \t]/)) {
        name = ""
        for (i = 1; i <= depth; i++) name = name suite[i] " > "
        seen(raw ~ /^[ \t]*✔/ ? PASSED : FAILED, name substr(raw, RLENGTH + 1))
    } else if (match(raw, /^[ \t]+/) && RLENGTH > 1) {
        if (RLENGTH > indent) suite[++depth] = substr(raw, RLENGTH + 1)
        else if (RLENGTH < indent && depth) depth--
        indent = RLENGTH
    }
}
on["karma"] && raw ~ /Starting browser/ && !started { started = 1 }

on["maven"] { # one test for each command, which the shell echoes
    if (line ~ /-Dtest=[^ \t]/) asked[++asking] = before(after(line, ".*-Dtest="), "[ \t]")
    if (line ~ /BUILD (SUCCESS|FAILURE)$/) {
        status = status_of(after(line, ".*BUILD "))
        if (answered < asking) seen(status, asked[++answered])
        else early[++ahead] = status
    }
}
END {
    for (i = 1; i <= ahead; i++) # the last is SWE-rebench's own name
        seen(early[i], answered < asking ? asked[++answered] : "---NO TEST NAME FOUND YET---")
}

on["surefire"] { # classes of tests
    if (line ~ /^(\[INFO\][ \t]+)?Running [A-Za-z0-9_$.]+$/) running = after(line, ".*Running ")
    if (match(line, /Tests run: *[0-9]+, *Failures: *[0-9]+, *Errors: *[0-9]+, *Skipped: *[0-9]+/)) {
        split(substr(line, RSTART, RLENGTH), number, /[^0-9]+/)
        if (line ~ / in [^ \t]+$/) running = after(line, ".* in ")
        seen(number[3] + number[4] ? FAILED : number[5] + 0 ? SKIPPED : PASSED, running)
        running = ""
    }
}

on["junit"] || on["junit-gradle"] { # XML; `tag` is what has begun and not ended
    rest = raw
    while (rest != "") {
        if (inside) {
            if (rest ~ /<(failure|error)/) status = FAILED
            else if (rest ~ /<skipped/ && status == PASSED) status = SKIPPED
            if (!match(rest, /<\/testcase>/)) break
            junit_case(tag, status)
            inside = 0; tag = ""
            rest = substr(rest, RSTART + RLENGTH)
            continue
        }
        if (tag == "" && !match(rest, /<testcase[ \t]/)) break
        if (tag == "") rest = substr(rest, RSTART + 10)
        if (!match(rest, /^([^">]|"[^"]*")*>/)) { tag = tag " " rest; break }
        tag = tag " " substr(rest, 1, RLENGTH - 1)
        rest = substr(rest, RLENGTH + 1)
        if (tag ~ /\/$/) { junit_case(tag, PASSED); tag = "" }
        else { inside = 1; status = PASSED }
    }
}

on["gradle"] {
    if (line ~ /^[^>].*[ \t](PASSED|FAILED|SKIPPED)$/) {
        name = line
        sub(/[ \t]+[A-Z]+$/, "", name)
        seen(status_of(after(line, ".*[ \t]")), name)
        pending = ""
    } else if (line ~ /^[^> \t][^ \t]*[ \t]+>[ \t]+[^ \t]+$/) pending = line
    else if (pending != "" && line ~ /^(PASSED|FAILED)$/) { seen(status_of(line), pending); pending = "" }
}

on["ant"] && line ~ /^\[junit\][ \t]+\[(PASS|FAIL|ERR)\][ \t]/ {
    line = after(line, "^\\[junit\\][ \t]+\\[")
    seen(status_of(before(line, "\\]")), after(line, "\\]"))
}

on["phpunit"] {
    if (raw ~ /^[A-Za-z0-9_].+ \(.+\)$/) title = last(raw, " (")
    else if (match(line, /^(✔|✘|↩)/)) {
        name = substr(line, RLENGTH + 1)
        sub(/^[ \t]+/, "", name)
        seen(status_of(substr(line, 1, RLENGTH)), title " > " name)
    }
}

on["minitest"] && line ~ / = [0-9.]+ s = [.FES]$/ {
    name = before(line, " = [0-9.]+ s = [.FES]$") " "
    seen(status_of(substr(line, length(line))), index(name, ". ") ? last(name, ". ") : name)
}

on["cucumber"] && match(line, /^.* \.+[.F]/) {
    name = substr(line, 1, RLENGTH)
    seen(name ~ /F$/ ? FAILED : PASSED, last(name, " "))
}

on["ruby-unit"] && match(line, /^.+:[ \t]+(\.|[EFO]([^A-Za-z0-9_]|$))/) {
    name = substr(line, 1, RLENGTH)
    sub(/[^A-Za-z0-9_.]$/, "", name)
    status = status_of(substr(name, length(name)))
    sub(/:[ \t]+.$/, "", name)
    sub(/^test: /, "", name)
    seen(status, name)
}

on["rspec"] && match(line, /^.+ - (passed|failed|pending)/) {
    name = substr(line, 1, RLENGTH)
    seen(status_of(after(name, ".* - ")), last(name, " - "))
}

on["redis"] && match(line, /^\[(ok|err|skip|ignore)\]: /) {
    status = status_of(substr(line, 2, RLENGTH - 4))
    name = substr(line, RLENGTH + 1)
    if (status == FAILED) sub(/[ \t]+in[ \t]+[^ \t]+$/, "", name)
    seen(status, before(name, " \\([0-9]+ *m?s\\)$"))
}

on["automake"] && line ~ /^(PASS|FAIL): / { seen(status_of(substr(line, 1, 4)), substr(line, 7)) }

on["micropython"] && line ~ /^(pass|FAIL|skip)[ \t]/ { seen(status_of(substr(line, 1, 4)), substr(line, 5)) }

on["googletest"] && line ~ /\[ *(OK|FAILED) *\] .* \(.*\)$/ {
    seen(line ~ /\[ *OK/ ? PASSED : FAILED, last(after(line, "\\[ *(OK|FAILED) *\\] "), " ("))
}
