// SPDX-License-Identifier: Apache-2.0
// Users and groups by their names, for all sessions of a run: each is looked up once, and the run's end does not wait for a lookup that hangs.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <utility>

namespace verbena::cli {

class user_lookups {
public:
    /// Both outlive this.
    user_lookups(reactor& shard, nfs::v4::name_source& source, nfs::v4::user_names_options options)
        : lookups_(shard, nullptr, nullptr, "user names"),
          ending_(shard, nullptr, nullptr, "the end of user names"),
          names_(lookups_, source, std::move(options))
    {
    }
    nfs::v4::user_names& names() noexcept { return names_; }
    /// Waits until no lookup is under way, for `limit` at most, when nobody looks up more. False if one is still: a lookup can't be
    /// recalled, and so neither this nor the source may be destroyed. Once.
    task<bool> end(duration limit)
    {
        const auto join = [](user_lookups& of) -> task<void> {
            co_await of.lookups_.join();
            of.over_.set();
        };
        const auto wait = [](user_lookups& of) -> task<result<bool>> {
            const bool is_over = co_await of.over_.wait();
            co_return is_over;
        };
        ending_.spawn(join, std::ref(*this));
        task<result<bool>> waiting = wait(*this);
        (void)co_await with_timeout(limit, std::move(waiting));
        if (over_.is_set())
            co_await ending_.join();
        co_return over_.is_set();
    }

private:
    scope lookups_;
    scope ending_; // joins it, for as long as that takes
    event over_;
    nfs::v4::user_names names_;
};

} // namespace verbena::cli
