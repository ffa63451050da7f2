// SPDX-License-Identifier: Apache-2.0
// task_dump: which tasks a shard has, and what each of them waits for. For a service that hangs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class reactor;

/// A picture of one shard's tasks: each scope with what it runs, down to what the innermost task waits for.
///
///     shard 0: 3 tasks
///       scope "sessions" 0x7f08c4: 2 children
///         serve_session, trace 17
///           read_block waits for semaphore 0x7f08c8
///         report waits for a sleep, 0.8 s left
///       states:
///         RDMA connection 0x7f08d0: serving for 12.500 s
///           12.500 s ago: setting up -> serving (accepted)
///
/// A task that has no line for what it waits for runs, is about to, or awaits something that keeps no wait_mark. A task is
/// in it that was started by a scope, by when_all(), when_any() or with_timeout(), or by an RPC server, and those that it awaits.
/// Not those behind a coroutine of another library. Behind the tasks stand the objects that have a named_state, each with its last
/// changes.
class task_dump {
public:
    /// The most lines that take() keeps if not told otherwise.
    static constexpr std::size_t usual_lines = 1000;

    /// Takes the picture. On the shard of `r` only, from a task of it too; then that one's line is its last wait's. It copies
    /// pointers, so that a shard of 1,000 tasks is held for less than a millisecond. Beyond `lines` it only counts.
    static task_dump take(reactor& r, std::size_t lines = usual_lines);

    /// For people. Any thread. Functions have their names from the symbol tables of the program's files, which are read here; in a
    /// stripped file a function is FILE+0xOFFSET, as `addr2line -Cfe FILE 0xOFFSET` takes it on the file with symbols.
    std::string text() const;
    /// How many coroutines there are, those without a line too.
    std::size_t tasks() const noexcept { return tasks_; }

private:
    struct line {
        unsigned depth = 0;
        const void* code = nullptr; ///< where the coroutine goes on; nullptr: not a task's line
        std::string text;           ///< behind the name
    };
    class walk;

    unsigned shard_ = 0;
    std::size_t tasks_ = 0;
    std::size_t left_out_ = 0; // lines
    std::vector<line> lines_;
};

} // namespace verbena

#pragma GCC visibility pop
