# SPDX-License-Identifier: Apache-2.0
"""What of a C++ header its users name, and which of that has no comment. `python3 tests/tools/docstrings.py HEADER...` tells."""
import re
import sys

sys.dont_write_bytecode = True
from awaitables import TOKEN, Declaration, Scope, without_groups

# Only the compiler calls them. The comment of what is awaited tells.
OF_COROUTINES = {"await_ready", "await_suspend", "await_resume", "promise_type", "get_return_object", "final_suspend", "initial_suspend",
                 "return_value", "return_void", "unhandled_exception"}
# The comment of verbena::xdr::codec tells of them, and of valid().
OF_CODECS = {"encode", "decode"}
# They do what they do in each container of the standard library.
OF_CONTAINERS = {"size", "empty", "begin", "end", "data", "clear", "front", "back", "push_back", "pop_back", "swap", "value_type", "iterator",
                 "const_iterator"}
# What such a class has its users choose: a name and a type seldom tell the unit, the default's meaning and who owns it.
CHOSEN = ("options", "limits", "settings")


def is_plain(tokens, name, owner):
    """A function of which its declaration tells all: a special member, a constructor without arguments, an operator of values, what
    overrides, is defaulted or deleted, and those that the sets above name."""
    words = without_groups(tokens)
    if tokens[-2:] in (["=", "default"], ["=", "delete"]) or "override" in words or "final" in words or words[:1] == ["~"]:
        return True
    if name == owner:
        inside = tokens[tokens.index("(") + 1:]
        arguments = inside[:inside.index(")")]
        return not arguments or owner in arguments and "&" in arguments and "," not in arguments
    if "operator" in words:
        return name != "operatorbool"
    return name in OF_COROUTINES | OF_CONTAINERS | {"valid"} or owner == "codec" and name in OF_CODECS


def function_name(tokens):
    """Of the function that `tokens` declare, special members too; None if they declare something else, or define what was declared
    elsewhere."""
    depth = 0
    for at, token in enumerate(tokens):
        if token == "(" and depth == 0:
            before = tokens[:at]
            break
        if token == "=" and depth == 0 and "operator" not in tokens[:at]:
            return None
        depth += (token in ("<", "[")) - (token in (">", "]"))
    else:
        return None
    if "operator" in before:
        return "".join(before[before.index("operator"):])
    if not before or not re.fullmatch(r"\w+", before[-1]) or before[-2:-1] == ["::"]:
        return None
    return "~" * (before[-2:-1] == ["~"]) + before[-1]


def told(declaration, opening, scope):
    """(kind, name) of what has to have a comment, else None. `opening` is "{" of a definition, or ";"."""
    tokens, words = declaration.tokens, declaration.words
    if words[:1] == ["static_assert"] or words[:1] == ["friend"] and opening == ";":
        return None
    if words[:1] == ["using"] and "=" in words:
        return ("name", words[1]) if words[1] not in OF_CONTAINERS else None
    if words[:1] == ["concept"]:
        return "concept", words[1]
    if words[:1] == ["enum"]:
        names = [word for word in words[1:words.index(":") if ":" in words else None] if word not in ("class", "struct")]
        return ("enum", names[-1]) if opening == "{" and names else None
    if opening == "{" and (name := declaration.class_name()):
        return "class", name
    if (name := function_name(tokens)) is not None:
        return None if is_plain(tokens, name, scope.name) else ("function", name)
    if scope.kind == "namespace" and not scope.comment and "constexpr" in words and "=" in words:
        return "constant", words[words.index("=") - 1]
    if scope.kind == "class" and scope.name.endswith(CHOSEN) and words[:1] != ["using"]:
        return "field", words[words.index("=") - 1 if "=" in words else -1]
    return None


def undocumented(text):
    """(line, kind, name) of each class, enum, concept, name of a type, constant and function that users see and that has no comment,
    and of each field of what they choose (options, limits, settings).

    One comment serves functions of one name that stand together, the members of a group that has one (@{ to @}), the constants of a
    namespace, and the fields and enumerators of a type. A class whose name ends in "awaiter" is told of by the function that
    returns it, and a function `x() const { return x_; }` by its name. What Doxygen leaves out (@cond) is left out here as well."""
    behind = {number for number, line in enumerate(text.split("\n"), 1) if "///<" in line}
    scopes, tokens, comment, line = [Scope("namespace")], [], [], 1
    begun, first = "", 0 # the comment and the line of the declaration at hand
    groups = 0 # brackets that are open in it
    grouped = left_out = False # between @{ and @}, and between @cond and @endcond
    missing, body = None, [] # what has no comment and a body, which is looked at first
    for match in TOKEN.finditer(text):
        token, here, line = match[0], line, line + match[0].count("\n")
        scope = scopes[-1]
        if token.startswith("///") and not token.startswith("///<"):
            if "@cond" in token or "@endcond" in token:
                left_out, comment = "@cond" in token, []
            elif "@}" in token:
                grouped, comment = False, []
            else:
                grouped = grouped or "@{" in token and any(comment)
                comment.append(token[3:].replace("@{", "").strip())
            continue
        if token.isspace() or token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        if scope.kind == "body":
            body.append(token)
            if token == "{":
                scopes.append(Scope("body"))
            elif token == "}":
                scopes.pop()
                if scopes[-1].kind != "body" and groups == 0:
                    if missing and here not in behind and body[:-1] != ["return", missing[2] + "_", ";"]:
                        yield missing
                    missing, body = None, []
            continue
        if not tokens:
            begun, first, comment = " ".join(comment).strip(), here, []
        groups += (token in ("(", "[")) - (token in (")", "]"))
        if token == "}" and groups == 0:
            scopes.pop()
            tokens, comment = [], []
            continue
        if scope.kind == "class" and token == ":" and tokens in (["public"], ["protected"], ["private"]):
            scope.hidden = scope.outer_hidden or tokens == ["private"]
            tokens, comment = [], []
            continue
        if token not in (";", "{") or groups > 0:
            if token == "{":
                scopes.append(Scope("body"))
                body = []
            tokens.append(token)
            continue
        declaration = Declaration(tokens, begun, first)
        specialises = tokens[:3] == ["template", "<", ">"]
        what = told(declaration, token, scope) if declaration.tokens and not specialises else None
        lacks = None
        if what and not (scope.hidden or left_out or begun or grouped or what[1] == scope.previous or what[1].endswith("awaiter") or
                         what[1] in OF_COROUTINES or here in behind and (token == ";" or what[0] == "field")):
            lacks = (first, *what)
        if what:
            scope.previous = what[1] if what[0] == "function" and (begun or what[1] == scope.previous) else ""
        name = declaration.class_name() if token == "{" and tokens[:1] != ["enum"] else None
        if token == "{" and (tokens[:1] == ["namespace"] or tokens[:2] == ["inline", "namespace"] or tokens == ["extern", '"C"']):
            scopes.append(Scope("namespace", "", begun, outer_hidden=scope.hidden or "detail" in tokens))
        elif name is not None:
            if lacks:
                yield lacks
            hidden = scope.hidden or specialises or name.endswith("awaiter") or name in OF_COROUTINES
            scopes.append(Scope("class", name, begun, first, hidden, declaration.words[0] == "class"))
        else:
            if token == "{":
                scopes.append(Scope("body"))
                missing, body = (lacks, []) if lacks and lacks[1] == "function" else (None, [])
            if lacks and lacks != missing:
                yield lacks
        tokens, comment = [], []


def main(names):
    count = 0
    for name in names:
        with open(name, encoding="utf-8") as file:
            for line, kind, what in undocumented(file.read()):
                print(f"{name}:{line}: {kind} {what}")
                count += 1
    print(count)


if __name__ == "__main__":
    main(sys.argv[1:])
