// SPDX-License-Identifier: Apache-2.0
// A state_table on a virtual clock, over a store in memory, whose clients are called "a", "b", "c".
#pragma once

#include "files_store.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/files/state_table.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

using namespace std::chrono_literals;

/// As the state layer has it, of space 0.
inline storage::handle file_named(std::string_view name)
{
    return files::file_key(0, storage::handle(std::as_bytes(std::span(name.data(), name.size()))));
}
inline std::span<const std::byte> owner_named(std::string_view name)
{
    return std::as_bytes(std::span(name.data(), name.size()));
}

class recording_handler final : public files::state_handler {
public:
    void recall(const files::recall_notice& n) noexcept override { recalls.push_back(n); }
    void recall_any(files::client_id c, std::size_t keep) noexcept override
    {
        recalled_any.emplace_back(c, keep);
    }
    void lock_available(const files::lock_notice& n) noexcept override
    {
        available.emplace_back(n.client,
                               std::string(reinterpret_cast<const char*>(n.owner.data()), n.owner.size()));
    }
    time_point last_heard(files::client_id c) noexcept override
    {
        const auto known = heard.find(c);
        return known == heard.end() ? time_point::min() : known->second;
    }
    void lost(const files::loss_notice& n) noexcept override { losses.push_back(n); }
    std::unique_ptr<storage::local_locks> local_locks_of(const storage::handle&) noexcept override
    {
        return make_local_locks ? make_local_locks() : nullptr;
    }
    std::function<std::unique_ptr<storage::local_locks>()> make_local_locks;
    std::map<files::client_id, time_point> heard;
    std::vector<files::recall_notice> recalls; // `file` is not to be followed
    std::vector<files::loss_notice> losses;    // `key` is not to be followed
    std::vector<std::pair<files::client_id, std::size_t>> recalled_any;
    std::vector<std::pair<files::client_id, std::string>> available;
};

struct files_fixture {
    files_fixture() { start(); }
    ~files_fixture() { stop(); }

    files::state_options options()
    {
        files::state_options o;
        o.epoch = lists.epoch;
        o.lease = 90s;
        return o;
    }
    void start(std::function<void(files::state_options&)> change = {})
    {
        stop();
        auto keys = lists.begin();
        files::state_options o = options();
        o.reclaimers = std::move(keys);
        if (change)
            change(o);
        store = std::make_unique<memory_store>(lists);
        commons.emplace(siphash_key());
        book.emplace(*commons, place.here, *store, handler, std::move(o));
        table = std::make_unique<files::state_table>(*commons, *book, 0, place.here, handler);
    }
    /// Everything in memory is lost.
    void stop()
    {
        table.reset();
        book.reset();
        commons.reset();
        store.reset();
    }
    static std::unique_ptr<reactor> make_reactor(virtual_clock& c)
    {
        reactor_options o;
        o.clock = &c;
        return std::move(*reactor::create(o));
    }
    template<class T>
    T run(task<T> t)
    {
        return run_until_complete(*shard, std::move(t));
    }
    /// One that has reclaimed all, and is written down as one that may keep others out.
    files::client_id client(std::string_view key, files::share keeps_out = files::share::both)
    {
        const files::client_id c = *book->add_client(key);
        BOOST_REQUIRE(book->set_callable(c, true));
        BOOST_REQUIRE(run(book->record(c, keeps_out)));
        BOOST_REQUIRE(run(book->reclaim_complete(c)));
        return c;
    }
    files::open_request request(files::client_id c, std::string_view owner, std::string_view file,
                                files::share access, files::share deny = files::share::none,
                                files::delegation_want want = files::delegation_want::none)
    {
        files::open_request r;
        r.client = c;
        r.owner = owner_named(owner);
        r.file = file_named(file);
        r.access = access;
        r.deny = deny;
        r.want = want;
        r.hears_of_locks = true;
        return r;
    }
    result<files::opened> open(files::client_id c, std::string_view owner, std::string_view file,
                               files::share access, files::share deny = files::share::none,
                               files::delegation_want want = files::delegation_want::none)
    {
        return table->open(request(c, owner, file, access, deny, want));
    }
    /// Whether `made` is refused for `why`.
    template<class T>
    static bool is(const result<T>& made, files::errc why)
    {
        return !made && made.error() == why;
    }
    /// Ten bytes, to write, by another owner than the open's.
    static files::lock_request lock_of(files::client_id c, const files::stateid& open, std::string_view file)
    {
        files::lock_request r;
        r.client = c;
        r.file = file_named(file);
        r.new_owner = true;
        r.id = open;
        r.owner = owner_named("l");
        r.bytes = {0, 9};
        r.type = files::lock_type::write;
        return r;
    }
    result<void> check(files::operation op, std::string_view file, files::client_id who = files::nobody)
    {
        return table->check(files::demand(op, file_named(file), who));
    }
    result<files::io_grant> check_io(files::client_id c, const files::stateid& id, std::string_view file,
                                     files::share access)
    {
        const bool writes = any(access & files::share::write);
        return table->check_io(c, id, file_named(file),
                               writes ? files::operation::write : files::operation::read);
    }
    /// `op` is under way, as a protocol has it before it asks.
    void begin(files::under_way& doing, std::string_view file, files::operation op)
    {
        const auto named = files::open_file_key(file_named(file));
        BOOST_REQUIRE(named);
        doing.begin(table->commons().operations().on(place.here), named->space, named->file, op);
    }
    result<void> make_way(const files::demand& d, duration patience)
    {
        return run(table->make_way(d, patience));
    }
    void pass(duration d) { clock.advance(d); }

    virtual_clock clock;
    std::unique_ptr<reactor> shard = make_reactor(clock);
    shard_of place{*shard};
    recovery_lists lists;
    recording_handler handler;
    std::unique_ptr<memory_store> store;
    std::optional<files::table_commons> commons;
    std::optional<files::client_book> book;
    std::unique_ptr<files::state_table> table;
};

} // namespace verbena::test
