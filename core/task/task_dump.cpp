// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/task_dump.hpp>

#include "../module/symbols.hpp"
#include "wait_text.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/trace_name.hpp>
#include <verbena/core/task/wait_record.hpp>

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

namespace verbena {
namespace {

using detail::root_record;
using detail::state_record;
using detail::task_group;
using detail::wait_record;

// Nested deeper than this, lines stand below each other.
constexpr unsigned deepest_indent = 40;

std::string counted(std::size_t n, const char* thing)
{
    return std::to_string(n) + ' ' + thing + (n == 1 ? "" : "s");
}

// The ABI of both GCC and clang: a frame begins with the function that resumes it.
const void* code_of(const wait_record& r) noexcept
{
    const void* code = nullptr;
    if (r.frame() != nullptr)
        std::memcpy(static_cast<void*>(&code), r.frame(), sizeof code);
    return code;
}

} // namespace

class task_dump::walk {
public:
    walk(task_dump& out, reactor& r, std::size_t most) : out_(out), reactor_(r), most_(most) {}

    void all()
    {
        intrusive_list<task_group>& groups = reactor_.task_groups();
        for (task_group* g = groups.front(); g != nullptr; g = groups.next(*g))
            g->shown = false;
        for (task_group* g = groups.front(); g != nullptr; g = groups.next(*g)) {
            if (g->joiner() == nullptr) // else it stands below who joins it
                group(*g, 1);
        }
        // Those that wait for each other in a circle, which nothing above leads to.
        for (task_group* g = groups.front(); g != nullptr; g = groups.next(*g)) {
            if (!g->shown)
                group(*g, 1);
        }
        states();
    }

private:
    bool full() const noexcept { return out_.lines_.size() >= most_; }

    void states()
    {
        intrusive_list<state_record>& all = reactor_.named_states();
        if (all.empty())
            return;
        line(1, [] { return std::string("states:"); });
        const time_point now = reactor_.clock().now();
        for (state_record* s = all.front(); s != nullptr; s = all.next(*s)) {
            line(2, [&] {
                return detail::format("%s %p: %s for ", s->machine(), static_cast<const void*>(s),
                                      s->name(s->now())) +
                       detail::seconds(now - s->since());
            });
            for (std::size_t i = 0; i < s->changes(); ++i) {
                const state_record::change& c = s->at(i);
                line(3, [&] {
                    return detail::seconds(now - c.when) +
                           detail::format(" ago: %s%s -> %s (%s)", c.refused ? "refused, " : "",
                                          s->name(c.from), s->name(c.to), c.why);
                });
            }
        }
    }

    template<class Text>
    void line(unsigned depth, Text text)
    {
        if (full())
            ++out_.left_out_;
        else
            out_.lines_.push_back({depth, nullptr, text()});
    }

    void group(task_group& g, unsigned depth)
    {
        std::size_t n = 0;
        for (root_record* r = g.roots().front(); r != nullptr; r = g.roots().next(*r))
            ++n;
        if (full())
            ++out_.left_out_;
        else
            out_.lines_.push_back(
                {depth, nullptr,
                 detail::name_of(g) + ": " + (n == 1 ? "1 child" : std::to_string(n) + " children")});
        roots(g, depth + 1);
    }

    void roots(task_group& g, unsigned depth)
    {
        g.shown = true;
        for (root_record* r = g.roots().front(); r != nullptr; r = g.roots().next(*r)) {
            // What runs a child is of no interest, unless there is no more than that.
            const wait_record* first = r->awaited_task();
            chain(first != nullptr ? *first : *r, depth);
        }
    }

    void chain(const wait_record& first, unsigned depth)
    {
        const task_context* context = nullptr;
        for (const wait_record* r = &first; r != nullptr; r = r->awaited_task(), ++depth) {
            ++out_.tasks_;
            task_group* below = nullptr;
            if (r->kind() == wait_kind::scope)
                below = const_cast<task_group*>(static_cast<const task_group*>(r->awaited()));
            if (full()) {
                ++out_.left_out_;
            } else {
                std::string text;
                if (r->context() != nullptr && r->context() != context)
                    text = about(*r->context());
                if (r->kind() != wait_kind::task && r->kind() != wait_kind::nothing)
                    text += " waits for " + detail::awaited_by(*r, reactor_);
                if (below != nullptr && below->shown)
                    text += ", see above";
                out_.lines_.push_back({depth, code_of(*r), std::move(text)});
            }
            context = r->context();
            if (below != nullptr && !below->shown)
                roots(*below, depth + 1);
        }
    }

    std::string about(const task_context& c) const
    {
        std::string text;
        if (c.trace_id != 0)
            text.append(", trace ").append(trace_name(c.trace_id).view());
        if (c.deadline != time_point::max()) {
            const duration left = c.deadline - reactor_.clock().now();
            text += left > duration::zero() ? ", deadline in " + detail::seconds(left)
                                            : ", deadline passed " + detail::seconds(-left) + " ago";
        }
        if (c.stop.stop_requested())
            text += ", asked to stop";
        return text;
    }

    task_dump& out_;
    reactor& reactor_;
    const std::size_t most_;
};

task_dump task_dump::take(reactor& r, std::size_t lines)
{
    assert(r.is_here() && "task_dump::take() on another thread than the shard's");
    task_dump out;
    out.shard_ = r.index();
    walk(out, r, lines).all();
    return out;
}

std::string task_dump::text() const
{
    std::vector<std::uintptr_t> addresses;
    for (const line& l : lines_) {
        if (l.code != nullptr)
            addresses.push_back(reinterpret_cast<std::uintptr_t>(l.code));
    }
    const detail::symbols names(std::move(addresses));
    std::string out = "shard " + std::to_string(shard_) + ": " + counted(tasks_, "task") + '\n';
    for (const line& l : lines_) {
        out.append(2 * std::size_t(std::min(l.depth, deepest_indent)), ' ');
        if (l.code != nullptr)
            out += names.name(reinterpret_cast<std::uintptr_t>(l.code));
        out += l.text + '\n';
    }
    if (left_out_ != 0)
        out += "  ... " + std::to_string(left_out_) + " more\n";
    return out;
}

} // namespace verbena
