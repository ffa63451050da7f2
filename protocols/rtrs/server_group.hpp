// SPDX-License-Identifier: Apache-2.0
// What a server_group keeps.
#pragma once

#include <verbena/protocols/rtrs/server.hpp>

#include <verbena/core/random.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/task/event.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace verbena::rtrs {

class home_server;

/// Somebody on `shard` waits until a name is free. Its shard deletes it, by deliver() or by whoever waits, if that comes first.
struct name_waiter final : remote_message {
    name_waiter(reactor& r, event& e) noexcept : shard(r), over(&e) {}
    virtual ~name_waiter() = default;
    void deliver() noexcept override
    {
        if (over != nullptr)
            over->set();
        delete this;
    }
    reactor& shard;
    event* over; // nullptr: nobody waits any more
};

struct name_entry {
    bool live = true;
    std::vector<name_waiter*> waiting;
};

struct server_group::impl {
    explicit impl(random_source& random) noexcept : key(random.key()) {}

    /// A shard over which sessions are spread.
    struct member {
        const shard* at;
        home_server* server; ///< while there is one; on that shard
    };
    const siphash_key key; // of home_of()
    std::vector<member> members;
    std::atomic<std::uint64_t> last_path{0};
    std::mutex mutex; // for what follows
    std::map<std::string, name_entry, std::less<>> names;
    std::uint32_t sessions = 0;
    std::unique_ptr<peer_shares> own;
    peer_shares* peers = nullptr;

    /// The member whose shard has this reactor; nullptr: it is none of them.
    member* find(const reactor& r) noexcept;
    /// Which of so many shards is the home of this session.
    std::size_t home_of(const uuid& session, std::size_t of) const noexcept;
    /// False: `otherwise` hears when to try again.
    result<bool> try_claim(const std::string& name, name_waiter& otherwise);
    /// Whether the paths of a session have ended and its requests have not.
    bool has_ending_session();
    /// False: its message is under way.
    bool forget(const std::string& name, name_waiter& w) noexcept;
};

} // namespace verbena::rtrs
