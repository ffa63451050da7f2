// SPDX-License-Identifier: Apache-2.0
// A doubly linked list whose nodes are members of the things listed: no allocation, and a thing can
// leave its list without knowing which one it is in.
#pragma once

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {
struct debug_layout;
}

/// Base of a thing that can stand in one intrusive_list at a time. Leaves it when destroyed.
class list_hook {
public:
    list_hook() = default;
    list_hook(const list_hook&) = delete;
    list_hook& operator=(const list_hook&) = delete;
    ~list_hook() { unlink(); }

    /// Whether it stands in a list.
    bool is_linked() const noexcept { return next_ != nullptr; }
    /// Leaves its list, in constant time; nothing if it stands in none.
    void unlink() noexcept
    {
        if (next_ == nullptr)
            return;
        previous_->next_ = next_;
        next_->previous_ = previous_;
        next_ = previous_ = nullptr;
    }

private:
    template<class T>
    friend class intrusive_list;
    friend struct detail::debug_layout;
    list_hook* next_ = nullptr;
    list_hook* previous_ = nullptr;
};

/// A list of T (derived from list_hook). Owns nothing. Nodes left behind are unlinked when the
/// list goes.
template<class T>
class intrusive_list {
public:
    intrusive_list() noexcept { head_.next_ = head_.previous_ = &head_; }
    intrusive_list(const intrusive_list&) = delete;
    intrusive_list& operator=(const intrusive_list&) = delete;
    ~intrusive_list()
    {
        while (pop_front() != nullptr) {
        }
        head_.next_ = head_.previous_ = nullptr;
    }

    bool empty() const noexcept { return head_.next_ == &head_; }
    void push_back(T& node) noexcept
    {
        list_hook& hook = node;
        hook.unlink();
        hook.previous_ = head_.previous_;
        hook.next_ = &head_;
        head_.previous_->next_ = &hook;
        head_.previous_ = &hook;
    }
    /// Puts `node` first; it leaves the list that it stood in. The list owns nothing: the node outlives its
    /// stay.
    void push_front(T& node) noexcept
    {
        list_hook& hook = node;
        hook.unlink();
        hook.next_ = head_.next_;
        hook.previous_ = &head_;
        head_.next_->previous_ = &hook;
        head_.next_ = &hook;
    }
    /// Behind `place`, which is in the list.
    void insert_after(T& place, T& node) noexcept
    {
        list_hook& hook = node;
        list_hook& before = place;
        hook.unlink();
        hook.previous_ = &before;
        hook.next_ = before.next_;
        before.next_->previous_ = &hook;
        before.next_ = &hook;
    }
    T* front() noexcept { return empty() ? nullptr : static_cast<T*>(head_.next_); }
    T* back() noexcept { return empty() ? nullptr : static_cast<T*>(head_.previous_); }
    /// Takes the first node out; nullptr if there is none.
    T* pop_front() noexcept
    {
        T* node = front();
        if (node != nullptr)
            static_cast<list_hook*>(node)->unlink();
        return node;
    }
    /// The node after `node`, or nullptr at the end.
    T* next(T& node) noexcept
    {
        list_hook& hook = node;
        return hook.next_ == &head_ ? nullptr : static_cast<T*>(hook.next_);
    }

    /// The node before `node`, or nullptr at the beginning.
    T* previous(T& node) noexcept
    {
        list_hook& hook = node;
        return hook.previous_ == &head_ ? nullptr : static_cast<T*>(hook.previous_);
    }

private:
    list_hook head_;
};

} // namespace verbena

#pragma GCC visibility pop
