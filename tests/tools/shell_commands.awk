# SPDX-License-Identifier: Apache-2.0
#
# Lists the commands that shell scripts call: "FILE:LINE NAME", and "FILE:LINE NAME()" for each function that
# they define. It reads words, quotes, substitutions and here-documents, and knows where a command may begin.
# Not seen: text that another program runs (bash -c, here-documents, traps) and names in variables.
#   awk -f shell_commands.awk FILE...
BEGIN {
    RS = "\001" # no script has this character: a record is a file
    split("if then else elif do while until ! time {", list, " ")
    for (i in list) keyword[list[i]] = 1
    # The first word after these that is no option, number or capital is a command, too.
    split("exec env command nice timeout xargs setsid nohup sudo at_exit quiet need have in_job expect_status", list, " ")
    for (i in list) wrapper[list[i]] = 1
}
{
    text = $0
    at = line = 1
    calls = documents = 0
    code("")
    for (i = 1; i <= calls; i++) print call[i]
}

function peek() { return substr(text, at, 1) }
function take(    c) {
    c = substr(text, at++, 1)
    if (c == "\n") line++
    return c
}
function take_to(end) { while (at <= length(text) && take() != end) continue }
function add(name) { call[++calls] = FILENAME ":" line " " name }

# Everything up to `shut` (one character) that is not in quotes; nested pairs of `open` count.
function nested(open, shut,    depth, c) {
    for (depth = 1; depth && at <= length(text);) {
        c = peek()
        if (c == "$") dollar()
        else if (c == "\"" && shut == "}") double_quoted()
        else {
            take()
            if (c == "\\") take()
            depth += (c == open) - (c == shut)
        }
    }
}
function dollar() {
    take()
    if (substr(text, at, 2) == "((") { take(); take(); nested("(", ")"); take() }
    else if (peek() == "(") { take(); code(")") }
    else if (peek() == "{") { take(); nested("{", "}") }
    else if (peek() == "'") {
        take()
        while (at <= length(text) && peek() != "'") if (take() == "\\") take()
        take()
    }
}
function double_quoted(    c) {
    take()
    while (at <= length(text) && (c = peek()) != "\"") {
        if (c == "$") dollar()
        else if (c == "`") { take(); code("`") }
        else if (take() == "\\") take()
    }
    take()
}
# The word that begins here. Quoted text and substitutions leave one character: ', " or $.
function word(stop,    w, c) {
    while (at <= length(text) && (c = peek()) !~ /[ \t\n;&|<>()]/ && c != stop) {
        if (c == "'") { take(); take_to("'"); w = w "'" }
        else if (c == "\"") { double_quoted(); w = w "\"" }
        else if (c == "$") { dollar(); w = w "$" }
        else if (c == "`") { take(); code("`"); w = w "$" }
        else if (c == "\\") { take(); if (take() != "\n") w = w "'" }
        else w = w take()
        if (w ~ /^[A-Za-z_][A-Za-z_0-9]*[+]?=$/ && peek() == "(") { take(); array() }
    }
    return w
}
function array(    c) {
    while (at <= length(text) && (c = peek()) != ")") {
        if (c == "#") take_to("\n")
        else if (word() == "") take()
    }
    take()
}
# After < or >: process substitution, here-document or a file.
function redirection(    c, strip) {
    c = take()
    if (peek() == "(") { take(); code(")"); return }
    if (c == "<" && peek() == "<" && substr(text, at + 1, 1) != "<") {
        take()
        strip = peek() == "-" && take() != ""
        while (peek() ~ /[ \t]/) take()
        for (c = ""; peek() !~ /[ \t\n;&|<>()]/;) c = c take()
        gsub(/["'\\]/, "", c)
        document[++documents] = c
        tabs[documents] = strip
        return
    }
    while (peek() ~ /[<>&|]/) take()
    while (peek() ~ /[ \t]/) take()
    word()
}
function skip_documents(    i, row, end) {
    for (i = 1; i <= documents; i++)
        do {
            end = index(substr(text, at), "\n")
            row = substr(text, at, end - 1)
            at = end ? at + end : length(text) + 1
            line++
            if (tabs[i]) sub(/^\t+/, "", row)
        } while (row != document[i] && at <= length(text))
    documents = 0
}
# Commands up to the character `stop`.
function code(stop,    c, w, begins, wrapped, cases, pattern) {
    begins = 1
    pattern = calls # what is found after it may still be the pattern of a case
    while (at <= length(text)) {
        c = peek()
        if (c == stop && !(c == ")" && cases)) { take(); return }
        if (c ~ /[ \t]/) take()
        else if (c == "#") { while (at <= length(text) && peek() != "\n") take() }
        else if (c ~ /[\n;&|]/) {
            begins = 1
            wrapped = 0
            if (take() == "\n" || (c == ";" && peek() == ";")) pattern = calls
            if (c == "\n") skip_documents()
        } else if (c ~ /[<>]/) redirection()
        else if (c == ")") { take(); calls = pattern; begins = 1 }
        else if (c == "(") {
            take()
            if (peek() == "(") { take(); nested("(", ")"); take() }
            else code(")")
            begins = 0
        } else {
            w = word(stop)
            if (w ~ /^[0-9]+$/ && peek() ~ /[<>]/) continue
            if (!begins) { begins = w ~ /^-(exec|execdir|ok)$/; continue }
            if (substr(text, at, 2) == "()") { add(w "()"); at += 2; continue }
            if (w in keyword || w ~ /^[A-Za-z_][A-Za-z_0-9]*(\[[^]]*\])?[+]?=/ || w == "") continue
            if (wrapped && w ~ /^-[aw]$/) { take(); w = word(stop) "-" } # of xargs and in_job: with a name
            if (wrapped && w ~ /^[-0-9'A-Z{]|-$/) continue
            if (w == "[[") { while (at <= length(text) && (w = word()) != "]]") if (w == "") take() }
            cases += (w == "case") - (w == "esac")
            if (w == "case") pattern = calls
            if (w ~ /^[a-z_][A-Za-z0-9_.+-]*$/) add(w)
            wrapped = begins = w in wrapper
        }
    }
}
