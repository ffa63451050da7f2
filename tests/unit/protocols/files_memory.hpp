// SPDX-License-Identifier: Apache-2.0
// A kind of recallable state: memory that clients use by themselves, whose fences are slow, fail and die.
#pragma once

#include "files_fixture.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

namespace verbena::test {

constexpr files::byte_range all_bytes{0, files::byte_range::to_the_end};

/// In the way of who opens to write, and of who sets the size; or of what `against` says.
class memory_kind final : public files::recallable_kind {
public:
    std::string_view name() const noexcept override { return "memory"; }
    bool conflicts(files::lock_type type, files::operation op) const noexcept override
    {
        if (!against.empty())
            return against.contains(op);
        return op == files::operation::open_write || op == files::operation::set_size ||
               (type == files::lock_type::write && op == files::operation::open_read);
    }
    bool conflicts_with_holder(files::lock_type, files::operation op) const noexcept override
    {
        return against_holder.contains(op);
    }
    bool excludes(files::lock_type type, const files::recallable_kind&,
                  files::lock_type wanted) const noexcept override
    {
        return is_exclusive && files::conflict(type, wanted);
    }
    void recall(const files::recall_notice& n) noexcept override { recalls.push_back(n); }
    void recall_any(files::client_id client, std::size_t keep) noexcept override
    {
        asked.emplace_back(client, keep);
    }
    std::optional<duration> recall_time() const noexcept override { return own_recall_time; }
    task<result<void>> fence(const files::lost_state& what) override
    {
        begun.push_back({what.client, what.id});
        lost.push_back(what); // whose `file` is not to be followed
        if (throws > 0) {
            --throws;
            throw std::runtime_error("a fence");
        }
        ++under_way;
        // One that takes no time ends in the turn in which it begins.
        bool goes_on = true;
        if (dead.contains(what.client))
            goes_on = false;
        else if (takes > 0s)
            goes_on = co_await sleep_for(takes);
        if (!goes_on) {
            ++stopped;
            if (ignores_stop) {
                const task_context& context = co_await current_context();
                scope nobody_stops(*context.shard);
                nobody_stops.spawn([this]() -> task<void> { (void)co_await released.wait(); });
                co_await nobody_stops.join();
            }
        }
        --under_way;
        if (fails > 0) {
            --fails;
            co_return error(std::errc::io_error, "a fence");
        }
        ended.push_back(what.client);
        co_return result<void>();
    }
    bool hole_conflicts(files::operation op) const noexcept override { return against_holes.contains(op); }
    bool unshared_conflicts(files::operation op) const noexcept override
    {
        return against_unshared.contains(op);
    }
    bool is_numbered() const noexcept override { return numbered; }
    void left(files::client_id client) noexcept override { gone.push_back(client); }
    std::uint32_t most_behind() const noexcept override { return behind; }
    bool ends_with_lease() const noexcept override { return without_courtesy; }
    bool has_room(const files::stateid&) const noexcept override { return !is_full; }
    std::size_t most() const noexcept override { return limit; }
    std::size_t most_of_client() const noexcept override { return of_client; }
    std::size_t most_of_file() const noexcept override { return of_file; }
    std::size_t most_ranges() const noexcept override { return ranges; }

    std::set<files::operation> against, against_holder, against_holes, against_unshared;
    bool is_exclusive = false, numbered = false;
    std::optional<duration> own_recall_time;
    duration takes = 0s;
    bool ignores_stop = false;
    std::set<files::client_id> dead; ///< whose fences end when `released` is set, if that `ignores_stop`
    event released;
    int fails = 0, throws = 0;
    std::uint32_t behind = 0;
    bool without_courtesy = false, is_full = false;
    std::size_t limit = 100, of_client = 100, of_file = 100, ranges = 4;
    std::vector<files::recall_notice> recalls;
    std::vector<std::pair<files::client_id, std::size_t>> asked;
    std::vector<std::pair<files::client_id, files::stateid>> begun;
    std::vector<files::lost_state> lost;
    std::vector<files::client_id> ended, gone;
    unsigned under_way = 0, stopped = 0;
};

struct memory_fixture : files_fixture {
    memory_fixture()
    {
        a = client("a");
        b = client("b");
    }
    ~memory_fixture() { stop(); }
    files::hold_request asks(files::client_id c, const files::stateid& by,
                             files::byte_range bytes = all_bytes,
                             files::lock_type type = files::lock_type::write, std::string_view file = "f")
    {
        files::hold_request r;
        r.client = c;
        r.file = file_named(file);
        r.kind = &memory;
        r.by = by;
        r.bytes = bytes;
        r.type = type;
        return r;
    }
    /// Without the open by which it is asked for.
    files::stateid only_memory(files::client_id c, std::string_view file = "f",
                               files::lock_type type = files::lock_type::write)
    {
        const auto o = open(c, "o", file, files::share::both);
        BOOST_REQUIRE(o);
        const auto held = table->hold(asks(c, o->id, all_bytes, type, file));
        BOOST_REQUIRE(held);
        BOOST_REQUIRE(table->close(c, o->id, file_named(file)));
        return *held;
    }
    bool gives_back(files::client_id c, const files::stateid& id, std::string_view file = "f")
    {
        return table->give_back(c, id, file_named(file), all_bytes, std::nullopt).has_value();
    }
    files::demand opening() { return files::demand(request(b, "o", "f", files::share::both)); }
    /// Makes room for an open of b, and notes whether the fence was over by then.
    task<void> opens(duration patience, result<void>& made)
    {
        made = co_await table->make_way(opening(), patience);
        if (made)
            BOOST_TEST(open(b, "o", "f", files::share::both).has_value());
        over_by_then = memory.under_way == 0;
    }
    /// Runs `body` beside tend().
    template<class Body>
    void beside_tend(Body body)
    {
        const auto all = [&]() -> task<void> {
            scope s(*shard);
            s.spawn([this] { return book->tend(); });
            s.spawn([this] { return table->tend(); });
            task<void> running = body();
            co_await running;
            s.request_stop();
            co_await s.join();
        };
        run(all());
    }
    memory_kind memory;
    files::client_id a = 0, b = 0;
    bool over_by_then = false;
};

} // namespace verbena::test
