"""The kinds of terminal task made up for practice: their wordings, their solutions, and wrong attempts.

A kind is text with fields in braces, filled by `envs.lab.synthetic`: {file}, {folder}, {text} and so on, a digit
after the name if a task has several of a sort. Every kind of the starter pack's is here, in other words than there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of task.

    plan: the words of a planning solver before the command. command: solves the task.
    slips: commands of a solver without a plan; none of them solves it.
    files: those there at the start, by name, with the sort of their content (see `synthetic`).
    """

    name: str
    plan: str
    command: str
    slips: Sequence[str]
    wordings: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)


def _kind(name: str, plan: str, command: str, slips: str, wordings: str, **files: str) -> Kind:
    places = {place: content for content, names in files.items() for place in names.split()}
    return Kind(name, plan, command, slips.split(" || "), wordings.strip().split("\n"), places)


EASY = ("append_line", "copy_file", "create_file", "make_directory")
"""Kinds of tasks for the quick recipe."""

KINDS = (
    _kind(
        "create_file",
        "a new file with echo and >.",
        "echo '{text}' > {file}",
        "touch {file} || echo '{text}' || mkdir {file}",
        """\
Make a file called {file} with the text: {text}
Put the text {text} into the new file {file}
I need a file {file}. It should say: {text}
Save the line {text} in {file}, which does not exist yet
Create {file} with one line in it: {text}
Write {text} to a new file, {file}
Set up a file with the name {file} that has the line {text}
There should be a file {file} that reads: {text}
Create a file called {file} with this line: {text}
A new file {file} is to contain: {text}
Write this into a new file called {file}: {text}
Store the line {text} in a new file with the name {file}""",
    ),
    _kind(
        "create_lines",
        "two lines with echo and >, then >>.",
        "echo '{word}' > {file} && echo '{word2}' >> {file}",
        "echo '{word} {word2}' > {file} || echo '{word}' > {file} && echo '{word2}' > {file} || touch {file}",
        """\
Make a file called {file}. Line one is {word}, line two is {word2}.
I need a file {file} with {word} in its first line and {word2} in its second.
Create {file} with the lines {word} and {word2}, in this order.
Write two lines to a new file {file}: {word}, then {word2}.
Set up a file named {file}: first the line {word}, then the line {word2}.
There should be a file {file} of two lines. They are {word} and {word2}.
Create a file called {file} that has two lines: {word} and {word2}.
Write {word} and, below it, {word2} to a new file {file}.""",
    ),
    _kind(
        "create_empty_file",
        "an empty file with touch.",
        "touch {name}",
        "mkdir {name} || echo {name} || echo empty > {name}",
        """\
Make the file {name} without any content
I need {name} as a file of size zero
Add a file {name} with nothing in it
Create the empty file {name}
Set up a file called {name} that has no content
There should be an empty file with the name {name}
Make an empty file called {name}
Create {name}, a file of no length""",
    ),
    _kind(
        "append_line",
        "add to a file with echo and >>.",
        "echo '{text}' >> {file}",
        "echo '{text}' > {file} || echo '{text}' || touch {file}",
        """\
Put {text} as a new last line into {file}
{file} needs one more line at its end: {text}
Extend {file} by the line {text}
Append this to {file}: {text}
At the end of {file}, add {text}
Add one more line to {file}, which says {text}
The line {text} is missing at the end of {file}; add it
Write the line {text} at the end of the file {file}
Append {text} to {file}
Append a line to {file}: {text}
The file {file} should end with one more line, {text}
Add {text} as the last line of {file}""",
        lines="{file}",
    ),
    _kind(
        "copy_file",
        "copy a file with cp.",
        "cp {file} {file2}",
        "mv {file} {file2} || touch {file2} || cat {file}",
        """\
Make a copy of {file} called {file2}
Duplicate {file} as {file2}
I want the content of {file} in a second file, {file2}
Save a copy of the file {file} as {file2}
There should be a copy of {file} with the name {file2}
Take a copy of {file}; it is to be called {file2}
Copy the file {file}; the copy's name is {file2}
Make {file2} a copy of {file}""",
        lines="{file}",
    ),
    _kind(
        "copy_into",
        "copy into a directory with cp.",
        "cp {file} {folder}/",
        "mv {file} {folder}/ || cp {file} || cat {file}",
        """\
Put a copy of {file} into the folder {folder}
The directory {folder} should hold a copy of {file}
Copy {file} to the folder {folder}
Place a copy of the file {file} in the directory {folder}
A copy of {file} belongs into {folder}, the original stays
Take {file} and copy it into the folder named {folder}
Copy {file} into {folder}, which is a directory
Make a copy of {file} in the directory {folder}""",
        lines="{file} {folder}/README",
    ),
    _kind(
        "rename_file",
        "a new name with mv.",
        "mv {file} {file2}",
        "cp {file} {file2} || rm {file} || touch {file2}",
        """\
Give {file} the new name {file2}
{file} should be called {file2} from now on
Change the name of {file} into {file2}
The file {file} needs another name: {file2}
Rename {file} so that it is called {file2}
Give the file {file} the name {file2} instead
Change the file name {file} to {file2}""",
        lines="{file}",
    ),
    _kind(
        "move_file",
        "move a file with mv.",
        "mv {file} {folder}/",
        "cp {file} {folder}/ || rm {file} || ls {folder}",
        """\
{file} belongs into the folder {folder}; put it there
Shift {file} to the folder {folder}
Take {file} and place it in {folder}
The file {file} has to go into the directory {folder}
Bring {file} into the directory {folder}
Move {file} to the folder {folder}
The place of {file} is the directory {folder}; move it there""",
        lines="{file} {folder}/README",
    ),
    _kind(
        "delete_file",
        "delete a file with rm.",
        "rm {file}",
        "ls {file} || touch {file} || cat {file}",
        """\
Get rid of {file}
{file} is not needed any more, remove it
Erase {file} but nothing else
Remove the file {file}
There should be no file {file} any more
Delete {file} and leave everything else
Remove {file}
Throw the file {file} away""",
        lines="{file} {file2}",
    ),
    _kind(
        "delete_directory",
        "delete a directory with rm -r.",
        "rm -r {folder}",
        "rm {folder} || ls {folder} || rmdir {folder}",
        """\
Get rid of the folder {folder} with all its content
Erase the whole folder {folder}
Delete the directory {folder} with everything inside
The directory {folder} and all that is in it should go
Remove {folder}, which is a directory, and its files
Delete the folder {folder} and its content
Remove the folder {folder} and all files in it
Delete {folder} with all that it contains""",
        lines="{folder}/{file}",
    ),
    _kind(
        "make_directory",
        "a new directory with mkdir -p.",
        "mkdir -p {path}",
        "touch {path} || ls {path} || echo {path}",
        """\
I need a folder {path}
Set up the folder {path}
Add a new folder: {path}
Create the directory {path}
Make a new directory called {path}
There should be a directory {path}
Make the folder {path}
Create a directory with the name {path}
Make a directory with the path {path}
Make {path}, a new directory""",
    ),
    _kind(
        "count_lines",
        "count lines with wc -l.",
        "wc -l < {file} > {file2}",
        "wc -l {file} || wc -w < {file} > {file2} || cat {file} > {file2}",
        """\
How many lines does {file} have? Store the number, and nothing else, in {file2}
Save the number of lines in {file} as {file2}
{file2} should say how many lines {file} has
Count how many lines there are in {file}; the result goes to {file2}
Count the lines in {file} and save just the number in {file2}
Write the number of lines of {file} to {file2}
Count the lines of {file}; write only their number to {file2}""",
        sentences="{file}",
    ),
    _kind(
        "count_words",
        "count words with wc -w.",
        "wc -w < {file} > {file2}",
        "wc -w {file} || wc -l < {file} > {file2} || cat {file} > {file2}",
        """\
How many words does {file} have? Store the number, and nothing else, in {file2}
Save the number of words in {file} as {file2}
{file2} should say how many words {file} has
Count how many words there are in {file}; the result goes to {file2}
Count the words of {file} and save just the number in {file2}
Write the number of words of {file} to {file2}
Count the words in {file}; only their number should stand in {file2}""",
        sentences="{file}",
    ),
    _kind(
        "sort_file",
        "sort lines with sort.",
        "sort {file} > {file2}",
        "sort {file} || cp {file} {file2} || cat {file} > {file2}",
        """\
Bring the lines of {file} into alphabetical order and store the result as {file2}
{file2} should hold the lines of {file} in sorted order
Sort {file} and save the result as {file2}
Write the sorted lines of {file} to {file2}
Put the lines of {file} in order and save them in {file2}
Sort the lines in {file}; the result goes to {file2}
Write {file} to {file2} with its lines sorted""",
        lines="{file}",
    ),
    _kind(
        "unique_lines",
        "each line once with sort -u.",
        "sort -u {file} > {file2}",
        "sort {file} > {file2} || sort -u {file} || cat {file} > {file2}",
        """\
Sort {file}, each line only once, and save the result as {file2}
{file2} should hold every distinct line of {file} once, in sorted order
Drop repeated lines from {file}, sort the rest and store them in {file2}
Save the different lines of {file}, in order and without repetition, as {file2}
Write each line of {file} once, sorted, to {file2}
Take the distinct lines in {file}, sort them and put them in {file2}
Write the sorted lines of {file} to {file2}, without repeating any
Write the different lines of {file} to {file2}, sorted""",
        repeated="{file}",
    ),
    _kind(
        "replace_word",
        "replace text with sed -i.",
        "sed -i 's/{word}/{word2}/g' {file}",
        "sed 's/{word}/{word2}/g' {file} || echo {word2} > {file} || grep {word} {file}",
        """\
Every {word} in {file} should become {word2}
Swap the word {word} for {word2} throughout {file}
{file} says {word} in several places; it should say {word2}
Change all occurrences of {word} in {file} to {word2}
Replace the word {word} by {word2} in the whole of {file}
In the file {file}, turn each {word} into {word2}
Put {word2} in place of {word} in {file}
Change {word} into {word2} in the file {file}
Replace {word} with {word2} in {file}
Change every {word} to {word2} in {file}
In {file}, {word} should be changed to {word2} everywhere
Replace each {word} in the file {file} by {word2}""",
        holding="{file}",
    ),
    _kind(
        "find_file",
        "find a file with find.",
        "find . -name {file} > {file2}",
        "find . -name {file} || echo {file} > {file2} || ls > {file2}",
        """\
Somewhere in here lies {file}. Store its path in {file2}
Where is {file}? Save the path as {file2}
Look for the file {file} and save where it is in {file2}
Search for {file} and store its path in {file2}
{file2} should hold the path of the file {file}
Find out where {file} is, and write the path to {file2}
Locate {file} and write the path of it to {file2}""",
        lines="{folder}/{folder2}/{file}",
    ),
    _kind(
        "find_lines",
        "find lines with grep.",
        "grep {word} {file} > {file2}",
        "grep {word} {file} || cat {file} > {file2} || echo {word} > {file2}",
        """\
Save all lines of {file} that have {word} in them as {file2}
{file2} should hold only those lines of {file} that contain {word}
Which lines of {file} contain {word}? Store them in {file2}
Put every line of {file} with {word} in it into {file2}
Take the lines with {word} from {file} and save them in {file2}
Write all lines in {file} that mention {word} to {file2}
Write every line with {word} in {file} to {file2}
Copy each line of {file} that contains {word} to {file2}
Only lines with {word} in them should go from {file} to {file2}""",
        holding="{file}",
    ),
    _kind(
        "first_line",
        "the first line with head -n 1.",
        "head -n 1 {file} > {file2}",
        "head {file} > {file2} || head -n 1 {file} || tail -n 1 {file} > {file2}",
        """\
Store the first line of {file} in {file2}
{file2} should hold only the top line of {file}
Take the first line of {file} and save it as {file2}
Save only the first line of the file {file} in {file2}
Put the first line of {file} into {file2}
Copy just the first line of {file} to {file2}
The first line of {file} should be written to {file2}
Write only line one of {file} to {file2}""",
        lines="{file}",
    ),
    _kind(
        "last_line",
        "the last line with tail -n 1.",
        "tail -n 1 {file} > {file2}",
        "tail -n 1 {file} || cat {file} > {file2} || head -n 1 {file} > {file2}",
        """\
Store the last line of {file} in {file2}
{file2} should hold only the final line of {file}
Take the last line of {file} and save it as {file2}
Save only the last line of the file {file} in {file2}
Put the last line of {file} into {file2}
Write the last line of {file} to {file2}
The last line of {file} should go to {file2}""",
        lines="{file}",
    ),
    _kind(
        "nth_line",
        "line {number} with sed -n {number}p.",
        "sed -n {number}p {file} > {file2}",
        "sed -n {number}p {file} || head -n {number} {file} > {file2} || head -n 1 {file} > {file2}",
        """\
Store the {ordinal} line of {file} in {file2}
{file2} should hold only the {ordinal} line of {file}
Take the {ordinal} line of {file} and save it as {file2}
Save only the {ordinal} line of the file {file} in {file2}
Put the {ordinal} line of {file} into {file2}
Copy just the {ordinal} line of {file} to {file2}
The {ordinal} line of {file} should be written to {file2}
Write only the {ordinal} line of {file} to {file2}""",
        lines="{file}",
    ),
    _kind(
        "concatenate",
        "join files with cat.",
        "cat {file} {file2} > {file3}",
        "cat {file} {file2} || cp {file} {file3} || cat {file2} {file} > {file3}",
        """\
Glue {file} and {file2} together as {file3}
{file3} should hold the content of {file}, followed by that of {file2}
Combine {file} and {file2} to make {file3}
First {file}, then {file2}: put both into the new file {file3}
Join the files {file} and {file2} and save the result as {file3}
Write {file} and then {file2} into one file, {file3}
Concatenate {file} and {file2} in that order, into {file3}
Join {file} and {file2}, the first one first, and call the result {file3}""",
        lines="{file} {file2}",
    ),
    _kind(
        "make_executable",
        "make executable with chmod +x.",
        "chmod +x {script}",
        "chmod -x {script} || sh {script} || touch {script}",
        """\
{script} should be runnable as a program
Set the execute permission of {script}
Allow {script} to be executed
The script {script} cannot be executed yet; change that
Turn {script} into an executable file
Give {script} the permission to be executed
{script} must become executable
Mark the file {script} as executable""",
        script="{script}",
    ),
    _kind(
        "make_link",
        "a symbolic link with ln -s.",
        "ln -s {folder} {name}",
        "ln -s {name} {folder} || cp -r {folder} {name} || touch {name}",
        """\
I need a symbolic link {name} to the directory {folder}
Set up {name} as a symbolic link to {folder}
Create a symlink called {name} that leads to the folder {folder}
{name} should be a symbolic link that points to {folder}
Link {name} symbolically to the directory {folder}
Let {name} be a symlink to the folder {folder}
Make a symlink {name} pointing to {folder}
Make a symbolic link called {name} to the directory {folder}""",
        lines="{folder}/README",
    ),
    _kind(
        "largest_file",
        "the largest file with ls -S.",
        "ls -S {folder} | head -n 1 > {file}",
        "ls {folder} > {file} || ls -S {folder} || ls {folder} | head -n 1 > {file}",
        """\
Which file in the folder {folder} is the largest? Store its name in {file}
Find the biggest file in {folder} and save its name as {file}
{file} should hold the name of the largest file in the folder {folder}
Save the name of the biggest file of the directory {folder} in {file}
Look for the largest file in {folder} and put its name into {file}
One file in {folder} is larger than the others. Store its name in {file}
Write the name of the biggest file in {folder} to {file}""",
        sizes="{folder}/",
    ),
    _kind(
        "json_value",
        "a value from JSON with python3.",
        """python3 -c "import json; print(json.load(open('{data}'))['{key}'])" > {file}""",
        "grep {key} {data} > {file} || cat {data} > {file} || echo {key} > {file}",
        """\
What is the value of {key} in {data}? Store it in {file}
Read {key} from {data} and save its value as {file}
{file} should hold the value that {key} has in {data}
Take the value of {key} from the file {data} and put it into {file}
Save the value of {key} that stands in {data} in {file}
Look up {key} in {data} and write its value to {file}
Write the value that {data} has for {key} to {file}""",
        json="{data}",
    ),
    _kind(
        "csv_column",
        "a column with cut, its header left out by tail.",
        "tail -n +2 {table} | cut -d, -f{column} > {file}",
        "cut -d, -f{column} {table} > {file} || cat {table} > {file} || tail -n +2 {table} > {file}",
        """\
Save the {place} column of {table} as {file}, one value a line and no header
{file} should hold the values of the {place} column of {table}, without the heading
Take column {column} of {table}, leave out the header, and store the values in {file}
Put the values in the {place} column of {table} into {file}, without the header line
Extract the {place} column from {table} into {file}, one value per line, header left out
Copy the {place} column of {table}, without its header, to {file}, one value a line
Write the values of the {place} column in {table} to {file}, one a line; skip the header
Write column {column} of {table} to {file} without its heading, a value per line""",
        csv="{table}",
    ),
)
