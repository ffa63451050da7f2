# SPDX-License-Identifier: Apache-2.0
"""What of a C++ header can be awaited, and what its comments say of that."""
import re

# The questions that each of them answers, in its own comment or for all of a class in that of the class.
QUESTIONS = ("Completes when", "On cancel", "Errors", "Lifetime", "Shard")
# Awaited by what a completion token of Asio's makes of it, so that its type does not tell.
OTHERS = {"use_task", "async_run"}
# Only the compiler calls it.
NOT_FOR_USERS = {"get_return_object"}

TOKEN = re.compile(r'///(?!<)[^\n]*|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*|'
                   r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|::|->|\w+|\s+|.', re.S | re.M)
CLOSING = {"(": ")", "[": "]", "{": "}"}


def without_groups(tokens):
    """Leaves out what stands in brackets, braces and template brackets, the brackets too."""
    plain, depth = [], 0
    for token in tokens:
        opens = token in ("(", "[", "{", "<")
        depth -= token in (")", "]", "}", ">")
        if depth == 0 and not opens and token not in (")", "]", "}", ">"):
            plain.append(token)
        depth += opens
    return plain


class Declaration:
    def __init__(self, tokens, comment, line):
        self.comment, self.line = comment, line
        while tokens[:2] == ["[", "["] or tokens[:1] == ["template"] or tokens[:1] == ["requires"]:
            tokens = after_group(tokens, "<" if tokens[0] == "template" else "(" if tokens[0] == "requires" else "[")
        self.tokens = tokens
        self.words = without_groups(tokens)

    def class_name(self):
        """Of a definition of a class, else None."""
        if not self.words or self.words[0] not in ("class", "struct") or "(" in outside_of(self.tokens, "["):
            return None
        head = self.words[1:self.words.index(":")] if ":" in self.words else self.words[1:]
        return next((w for w in reversed(head) if w != "final"), "")

    def function(self):
        """(name, returned type) of a function, else None. A definition of what was declared elsewhere is none."""
        depth = 0
        for at, token in enumerate(self.tokens):
            if token == "(" and depth == 0:
                break
            if token == "=" and depth == 0 and self.tokens[at - 1] != "operator":
                return None
            depth += (token in ("<", "[")) - (token in (">", "]"))
        else:
            return None
        before, after = self.tokens[:at], self.tokens[at:]
        if "operator" in before:
            name_at = before.index("operator")
        else:
            name_at = len(before) - 1
        name, kind = " ".join(before[name_at:]) or "?", before[:name_at]
        if name == "operator":
            name, after = "operator()", after[2:]
        if kind[-1:] in ([], ["::"], ["~"]):
            return None
        arrow = without_groups(after)
        if kind[-1] == "auto" and "->" in arrow:
            kind = after[after.index("->") + 1:]
        return name, [w for w in kind if w not in ("virtual", "static", "inline", "constexpr", "friend", "explicit", "typename")]

    def implements(self):
        """Overrides a function of a base, whose comment tells."""
        words = without_groups(self.tokens)
        return "override" in words or (words[-1:] == ["final"] and "(" in self.tokens)


def outside_of(tokens, opening):
    kept, depth = [], 0
    for token in tokens:
        depth += token == opening
        if depth == 0:
            kept.append(token)
        depth -= token == CLOSING[opening]
    return kept


def after_group(tokens, opening):
    """What follows the first group that `opening` begins."""
    closing, depth = CLOSING.get(opening, ">"), 0
    for at, token in enumerate(tokens):
        if token == opening:
            depth += 1
        elif token == closing:
            depth -= 1
            if depth == 0:
                return tokens[at + 1:]
    return []


class Scope:
    def __init__(self, kind, name="", comment="", line=0, outer_hidden=False, is_hidden=False):
        self.kind, self.name, self.comment, self.line = kind, name, comment, line
        self.outer_hidden = outer_hidden # users see nothing of it
        self.hidden = outer_hidden or is_hidden # they don't see what is declared at this place in it
        self.previous = "" # the comment that "The same" refers to


def is_awaited(kind):
    plain = without_groups(kind)
    return bool(plain) and (plain[-1] == "task" or plain[-1].endswith("awaiter"))


def awaitables(text):
    """(line, name, what their comments say) of all that users await: functions that return a task or an awaiter, classes with
    await_ready() that are not called awaiter, and OTHERS. Not of what is private or in a namespace detail; nor of a function
    that overrides one of a base, and answers as that does. A comment that begins with "The same" says what the one before
    says."""
    scopes, tokens, comment, line = [Scope("namespace")], [], [], 1
    begun, first = "", 0 # the comment and the line of the declaration at hand
    groups = 0 # brackets that are open in it
    for match in TOKEN.finditer(text):
        token, here, line = match[0], line, line + match[0].count("\n")
        scope = scopes[-1]
        if token.startswith("///") and not token.startswith("///<"): # that one is of what stands before it
            comment.append(token[3:].strip())
            continue
        if token.isspace() or token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        if scope.kind == "body": # of a function, or an initializer: nothing in it is declared
            if token == "{":
                scopes.append(Scope("body"))
            elif token == "}":
                scopes.pop()
            continue
        if not tokens:
            begun, first, comment = " ".join(comment), here, []
        if token in ("(", "["):
            groups += 1
        elif token in (")", "]"):
            groups -= 1
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
            tokens.append(token)
            continue
        declaration = Declaration(tokens, begun, first)
        if token == "{" and (tokens[:1] == ["namespace"] or tokens[:2] == ["inline", "namespace"] or tokens == ["extern", '"C"']):
            scopes.append(Scope("namespace", outer_hidden=scope.hidden or "detail" in tokens))
        elif token == "{" and tokens[:1] != ["enum"] and (name := declaration.class_name()) is not None:
            scopes.append(Scope("class", name, begun, first, scope.hidden, declaration.words[0] == "class"))
        else:
            function = declaration.function()
            if function and function[0] == "await_ready" and not scope.name.endswith("awaiter") and not scope.outer_hidden:
                yield scope.line, scope.name, scope.comment
            named = function[0] if function else next((w for w in declaration.words if w in OTHERS), "")
            awaited = named in OTHERS or (function and is_awaited(function[1]) and named not in NOT_FOR_USERS)
            if awaited and not scope.hidden and not declaration.implements():
                said = begun
                if re.match(r"(The same|Likewise)\b", begun):
                    said += " " + scope.previous
                else:
                    scope.previous = begun
                yield first, named, said + " " + (scope.comment if scope.kind == "class" else "")
            if token == "{":
                scopes.append(Scope("body"))
        tokens, comment = [], []
    if len(scopes) != 1:
        yield line, "its end: braces that tests/tools/awaitables.py does not understand", ""


def unanswered(said):
    return [question for question in QUESTIONS if not re.search(rf"\b{question}\b[^.:]*: *\S", said)]
