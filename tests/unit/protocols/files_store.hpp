// SPDX-License-Identifier: Apache-2.0
// A recovery store in memory, which survives the tables that are made over it.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/files/recovery.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace verbena::test {

/// The shard whose reactor that is.
struct shard_of {
    explicit shard_of(reactor& r) : buffers(budget, &r), tasks(r), here(0, r, buffers, tasks) {}
    memory_budget budget{std::size_t(1) << 20};
    buffer_pool buffers;
    scope tasks;
    verbena::shard here;
};

/// What is on the disk.
struct recovery_lists {
    std::map<std::string, files::share, std::less<>> old_list; ///< of the grace period that is not over
    std::map<std::string, files::share, std::less<>> new_list;
    bool in_grace = false;
    std::uint32_t epoch = 0;

    /// At a start: who may reclaim.
    std::vector<files::reclaimer> begin()
    {
        ++epoch;
        if (!in_grace)
            old_list = std::move(new_list);
        new_list.clear();
        in_grace = !old_list.empty();
        std::vector<files::reclaimer> out;
        for (const auto& [key, keeps_out] : old_list)
            out.push_back({key, keeps_out});
        return out;
    }
};

class memory_store final : public files::recovery_store {
public:
    explicit memory_store(recovery_lists& l) noexcept : lists_(l) {}

    task<result<void>> add(std::string_view key, files::share keeps_out) override
    {
        return change(
            "add", key,
            [](recovery_lists& l, const std::string& k, files::share s) {
                l.new_list[k] = l.new_list[k] | s;
            },
            keeps_out);
    }
    task<result<void>> remove(std::string_view key) override
    {
        return change("remove", key, [](recovery_lists& l, const std::string& k, files::share) {
            l.new_list.erase(k);
            l.old_list.erase(k);
        });
    }
    task<result<void>> end_grace() override
    {
        return change("end", "", [](recovery_lists& l, const std::string&, files::share) {
            l.old_list.clear();
            l.in_grace = false;
        });
    }

    std::function<duration()> takes; ///< how long a write takes; none: no time
    bool ignores_stop = false;       ///< while it writes
    std::function<bool()> fails;     ///< whether it does
    bool is_gone = false;            ///< the machine has stopped: nothing reaches the disk any more
    unsigned writing = 0;            ///< changes under way
    bool arrives = false;            ///< with is_gone: what was being written does, and nobody hears of it
    /// Called with each change.
    std::function<void(std::string_view what, std::string_view key, files::share)> wrote;
    std::vector<std::string> written; ///< "add a", "remove b", "end "

private:
    using how = void (*)(recovery_lists&, const std::string&, files::share);
    task<result<void>> change(const char* what, std::string_view key, how f,
                              files::share keeps_out = files::share::none)
    {
        return write(what, std::string(key), f, keeps_out);
    }
    task<result<void>> write(const char* what, std::string key, how f, files::share keeps_out)
    {
        ++writing;
        if (takes && ignores_stop) {
            const task_context& context = co_await current_context();
            scope nobody_stops(*context.shard);
            nobody_stops.spawn([time = takes()]() -> task<void> { (void)co_await sleep_for(time); });
            co_await nobody_stops.join();
        } else if (takes) {
            co_await sleep_for(takes());
        }
        --writing;
        if ((is_gone && !arrives) || (fails && fails()))
            co_return error(std::errc::io_error, "the store");
        f(lists_, key, keeps_out);
        written.push_back(what + (" " + key));
        if (wrote)
            wrote(what, key, keeps_out);
        if (is_gone)
            co_return error(std::errc::io_error, "the store");
        co_return result<void>();
    }
    recovery_lists& lists_;
};

} // namespace verbena::test
