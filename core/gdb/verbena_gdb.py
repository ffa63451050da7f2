# SPDX-License-Identifier: Apache-2.0
"""The command `verbena tasks` for gdb: which tasks each reactor has, and what they wait for.

    (gdb) source /usr/share/verbena/verbena_gdb.py
    (gdb) verbena tasks

It works on a running process and on a core file, calls no function of the process, and needs no debug information, though with it
lines have the place in the source. What it reads is described by the process itself (verbena_debug_layout, core/task/debug_layout.hpp).
"""
import os.path
import re
import sys

import gdb

FIELDS = ("version", "size", "reactor_next", "reactor_index", "reactor_thread", "reactor_groups", "hook_next", "group_hook",
          "group_name", "group_roots", "group_joiner", "root_hook", "root_wait", "record_kind", "record_awaited", "record_frame",
          "record_context", "context_trace", "pool_name")
VERSION = 1
# wait_kind of wait_record.hpp.
NOTHING, TASK, SCOPE, EVENT, SEMAPHORE, SLEEP, BUFFER, BLOCKING_CALL, FILE_READ, OTHER_SHARD, OTHER = range(11)
MOST_ENTRIES = 1_000_000 # of a list: one that was stopped in the midst of a change may lead anywhere
LONGEST_TEXT = 200


def read(address, size):
    return bytes(gdb.selected_inferior().read_memory(address, size))


def integer(address, size=8):
    return int.from_bytes(read(address, size), sys.byteorder)


def text_at(address):
    out = b""
    while len(out) < LONGEST_TEXT:
        byte = read(address + len(out), 1)
        if byte == b"\0":
            break
        out += byte
    return out.decode(errors="replace")


def without_arguments(name):
    """As coroutine_name() of core/module/symbols.cpp: no return type, no arguments."""
    name = re.sub(r" \[clone .*|\.(resume|actor)$", "", name)
    name = re.sub(r"( const| &+| noexcept)+$", "", name).replace(" const::", "::")
    depth = 0
    if name.endswith(")"):
        for at in reversed(range(len(name))):
            depth += (name[at] == ")") - (name[at] == "(")
            if depth == 0:
                if at > 0 and not name[:at].endswith("operator"):
                    name = name[:at]
                break
    depth = 0
    for at in reversed(range(len(name))):
        depth += (name[at] in ">)}]") - (name[at] in "<({[")
        if depth == 0 and name[at] == " ":
            name = name[at + 1:]
            break
    return name if len(name) <= LONGEST_TEXT else name[:LONGEST_TEXT] + "..."


class Tasks:
    """One look at a process."""

    def __init__(self):
        try:
            layout = int(gdb.parse_and_eval("&verbena_debug_layout"))
            self.first = int(gdb.parse_and_eval("&verbena_debug_reactors"))
        except gdb.error:
            raise gdb.GdbError("verbena tasks: there is no verbena in this program, or its symbols are stripped") from None
        if gdb.selected_inferior().pid == 0:
            raise gdb.GdbError("verbena tasks: no process is running and no core file is loaded")
        version = integer(layout, 4)
        size = integer(layout + 4, 4)
        if version != VERSION or size != 4 * len(FIELDS):
            raise gdb.GdbError(f"verbena tasks: the process has layout {version}, this script knows {VERSION}: "
                               "use the script that came with the process's version")
        for i, name in enumerate(FIELDS):
            setattr(self, name, integer(layout + 4 * i, 4))
        self.shown = set()
        self.names = {}

    def show(self):
        reactors = []
        reactor = integer(self.first)
        while reactor != 0 and len(reactors) < MOST_ENTRIES:
            reactors.append(reactor)
            reactor = integer(reactor + self.reactor_next)
        if not reactors:
            print("no reactor")
        for reactor in sorted(reactors, key=lambda r: integer(r + self.reactor_index, 4)):
            self.show_reactor(reactor)

    def show_reactor(self, reactor):
        print(f"shard {integer(reactor + self.reactor_index, 4)}, {self.thread_of(reactor)}:")
        try:
            groups = [hook - self.group_hook for hook in self.entries(reactor + self.reactor_groups)]
            for group in groups:
                if integer(group + self.group_joiner) == 0: # else it stands below who joins it
                    self.show_group(group)
            for group in groups: # those that wait for each other in a circle
                if group not in self.shown:
                    self.show_group(group)
            if not groups:
                print("  no tasks")
        except gdb.MemoryError as e:
            print(f"  the rest can't be read, since the process was stopped in the midst of a change: {e}")

    def entries(self, head):
        hook = integer(head + self.hook_next)
        for _ in range(MOST_ENTRIES):
            if hook in (head, 0):
                return
            yield hook
            hook = integer(hook + self.hook_next)

    def thread_of(self, reactor):
        number = integer(reactor + self.reactor_thread, 4)
        for thread in gdb.selected_inferior().threads():
            if number in (thread.ptid[1], thread.ptid[2]):
                return f"thread {thread.num} (LWP {number})"
        return f"LWP {number}, which is gone"

    def name_of_group(self, group):
        name = integer(group + self.group_name)
        return f'scope "{text_at(name)}" {group:#x}' if name != 0 else f"scope {group:#x}"

    def show_group(self, group):
        count = sum(1 for _ in self.entries(group + self.group_roots))
        print(f"  {self.name_of_group(group)}: {count} {'child' if count == 1 else 'children'}")
        self.show_roots(group, 2)

    def show_roots(self, group, depth):
        self.shown.add(group)
        for hook in self.entries(group + self.group_roots):
            record = hook - self.root_hook + self.root_wait
            # What runs a child is of no interest, unless there is no more than that.
            self.show_chain(self.awaited_task(record) or record, depth)

    def awaited_task(self, record):
        if integer(record + self.record_kind, 1) != TASK:
            return 0
        return integer(record + self.record_awaited)

    def show_chain(self, record, depth):
        context = 0
        for _ in range(MOST_ENTRIES):
            kind = integer(record + self.record_kind, 1)
            awaited = integer(record + self.record_awaited)
            line = "  " * min(depth, 40) + self.function_of(integer(integer(record + self.record_frame)))
            if integer(record + self.record_context) != context:
                context = integer(record + self.record_context)
                trace = integer(context + self.context_trace)
                name = f"{trace >> 32}.{trace & 0xffffffff:08x}" if trace >> 32 else str(trace) # as trace_name
                line += f", trace {name}" if trace != 0 else ""
            if kind not in (NOTHING, TASK):
                line += " waits for " + self.describe(kind, awaited)
            below = kind == SCOPE and awaited not in self.shown
            print(line + (", see above" if kind == SCOPE and not below else ""))
            if below:
                self.show_roots(awaited, depth + 1)
            record = awaited
            depth += 1
            if kind != TASK:
                return

    def describe(self, kind, awaited):
        if kind == SCOPE:
            return self.name_of_group(awaited)
        if kind == BLOCKING_CALL:
            return "a blocking call in lane " + text_at(integer(awaited + self.pool_name)) # std::string begins with its pointer
        if kind == OTHER_SHARD:
            return f"a call on shard {integer(awaited + self.reactor_index, 4)}"
        if kind == OTHER:
            return text_at(awaited)
        return {EVENT: f"event {awaited:#x}", SEMAPHORE: f"semaphore {awaited:#x}", SLEEP: "a sleep",
                BUFFER: "memory for a buffer", FILE_READ: "a read by the ring"}.get(kind, f"a wait of kind {kind}")

    def function_of(self, code):
        if code not in self.names:
            self.names[code] = self.look_up(code)
        return self.names[code]

    def look_up(self, code):
        known = gdb.execute(f"info symbol {code:#x}", to_string=True)
        if " in section " not in known:
            return f"{code:#x}"
        name = without_arguments(re.sub(r"( \+ \d+)? in section .*", "", known, flags=re.S))
        place = gdb.find_pc_line(code)
        if place.symtab is not None:
            name += f" ({os.path.basename(place.symtab.filename)}:{place.line})"
        return name


class VerbenaPrefix(gdb.Command):
    """Commands for programs that are made with verbena."""

    def __init__(self):
        super().__init__("verbena", gdb.COMMAND_STATUS, prefix=True)


class VerbenaTasks(gdb.Command):
    """Shows the tasks of each reactor, and what they wait for.

A task without "waits for" runs, is in its reactor's run queue, or awaits something that says nothing of itself. Those that run at this
moment are in the backtraces of their threads. The place in the source is where the coroutine's function begins."""

    def __init__(self):
        super().__init__("verbena tasks", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        Tasks().show()


VerbenaPrefix()
VerbenaTasks()
