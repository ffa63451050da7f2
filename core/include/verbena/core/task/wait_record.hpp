// SPDX-License-Identifier: Apache-2.0
// What each suspended coroutine waits for, kept where a dump and a debugger find it.
//
// A service hangs: who waits for what? From the reactor down: it lists its groups of tasks (scopes), a group lists its roots, and a
// coroutine that really waits points at the task or says what else it awaits. Nothing is written for a task that ends without a
// wait, which is the usual one: a record is written when its coroutine is suspended, and when it goes on. Written and read by
// the shard's thread alone, or by a debugger that stopped it. docs/internals/tasks.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>

#include <concepts>
#include <coroutine>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena {

struct task_context;

/// What a suspended coroutine awaits.
enum class wait_kind : std::uint8_t {
    nothing,       ///< it runs, is in the run queue, or awaits something that says nothing
    task,          ///< another task
    scope,         ///< the end of a scope's children
    event,         ///< an event
    semaphore,     ///< a semaphore, or a channel, which is made of two
    sleep,         ///< a timer
    buffer,        ///< memory of a buffer pool
    blocking_call, ///< a thread of a blocking_pool, or what it calls
    file_read,     ///< a read by the ring
    other_shard,   ///< a call on another shard
    other,         ///< what the text says
};

namespace detail {

/// Part of the promise of each coroutine of ours.
class wait_record {
public:
    wait_record() = default;
    wait_record(const wait_record&) = delete;

    void set_context(const task_context* context) noexcept { context_ = context; }
    /// The context of the chain, or nullptr when no scope started it.
    const task_context* context() const noexcept { return context_; }

    /// The coroutine is suspended until `object`, of which `kind` says what it is, is done.
    void waits(wait_kind kind, const void* object) noexcept
    {
        awaited_ = object;
        kind_ = kind;
    }
    /// It is in the run queue, or resumed.
    void goes_on() noexcept { kind_ = wait_kind::nothing; }
    void set_frame(void* frame) noexcept { frame_ = frame; }

    wait_kind kind() const noexcept { return kind_; }
    const void* awaited() const noexcept { return awaited_; }
    /// The task that it awaits, or nullptr.
    const wait_record* awaited_task() const noexcept
    {
        return kind_ == wait_kind::task ? static_cast<const wait_record*>(awaited_) : nullptr;
    }
    /// coroutine_handle::address(), once it has been suspended.
    void* frame() const noexcept { return frame_; }

private:
    friend struct debug_layout;
    const task_context* context_ = nullptr;
    // Not initialised: written when the coroutine is suspended first, which it seldom is.
    const void* awaited_;
    void* frame_;
    wait_kind kind_ = wait_kind::nothing;
};

class root_record;

/// Roots that stand together: those of a scope. In its reactor's list while one of them waits.
class task_group : public list_hook {
public:
    /// `name` is what a dump shows, and outlives the group; nullptr for none.
    explicit task_group(const char* name) noexcept : name_(name) {}

    inline void enter(intrusive_list<task_group>& all, root_record& root) noexcept;
    inline void leave(root_record& root) noexcept;
    const char* name() const noexcept { return name_; }
    intrusive_list<root_record>& roots() noexcept { return roots_; }

    /// `joiner` waits for the end of all; nullptr for a coroutine without a record.
    void joined_by(wait_record* joiner) noexcept
    {
        joiner_ = joiner;
        if (joiner != nullptr)
            joiner->waits(wait_kind::scope, this);
    }
    void joiner_goes_on() noexcept
    {
        if (joiner_ != nullptr)
            joiner_->goes_on();
        joiner_ = nullptr;
    }
    const wait_record* joiner() const noexcept { return joiner_; }
    bool shown = false; ///< for a dump

private:
    friend struct debug_layout;
    const char* name_;
    wait_record* joiner_ = nullptr;
    intrusive_list<root_record> roots_;
};

/// Part of the promise of a coroutine that no other one awaits, and which awaits one task. In its group from that one's first wait on.
class root_record : public list_hook, public wait_record {
public:
    root_record(task_group& group, const task_context& context) noexcept : group_(group)
    {
        set_context(&context);
    }
    ~root_record()
    {
        if (is_linked())
            group_.leave(*this);
    }
    /// `frame` is that of the root. On the shard.
    void first_wait(void* frame) noexcept
    {
        set_frame(frame);
        enter_group();
    }

private:
    friend struct debug_layout;
    void enter_group() noexcept; // where the list is that it goes into
    task_group& group_;
};

void task_group::enter(intrusive_list<task_group>& all, root_record& root) noexcept
{
    if (!is_linked())
        all.push_back(*this);
    roots_.push_back(root);
}
void task_group::leave(root_record& root) noexcept
{
    root.unlink();
    if (roots_.empty())
        unlink();
}

template<class Promise>
wait_record* record_of(std::coroutine_handle<Promise> h) noexcept
{
    if constexpr (std::derived_from<Promise, wait_record>)
        return &h.promise();
    else
        return nullptr;
}

} // namespace detail

/// Says what a coroutine waits for, on behalf of an awaiter, which keeps it. An awaiter without one works as well: its coroutine
/// then stands in a dump without what it waits for.
///
///     template<class Promise>
///     void await_suspend(std::coroutine_handle<Promise> h) { mark_.set(h, "the answer of the moon"); ... }
///     void answered() { mark_.clear(); shard_.post(handle_); }
///
/// On the coroutine's shard only.
class wait_mark {
public:
    /// `h` is about to be suspended, and waits for `object`.
    template<class Promise>
    void set(std::coroutine_handle<Promise> h, wait_kind kind, const void* object) noexcept
    {
        record_ = detail::record_of(h);
        if (record_ != nullptr)
            record_->waits(kind, object);
    }
    /// It waits for something of which this says what it is, behind "waits for". `text` is a literal.
    template<class Promise>
    void set(std::coroutine_handle<Promise> h, const char* text) noexcept
    {
        set(h, wait_kind::other, text);
    }
    /// It is about to go on. Needed before it is resumed, else it seems to wait for this wherever it is suspended next.
    void clear() noexcept
    {
        if (record_ != nullptr)
            record_->goes_on();
    }

private:
    detail::wait_record* record_ = nullptr;
};

} // namespace verbena

#pragma GCC visibility pop
