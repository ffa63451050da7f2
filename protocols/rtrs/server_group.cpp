// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/server.hpp>

#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace verbena::rtrs {

namespace {

// Somebody on `shard` waits until a name is free. Its shard deletes it, by deliver() or by whoever waits, if that comes first.
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

} // namespace

struct server_group::impl {
    explicit impl(random_source& random) noexcept : key(random.key()) {}
    const siphash_key key; // of shard_of()
    std::mutex mutex;
    std::map<std::string, name_entry, std::less<>> names;
    std::uint32_t sessions = 0;
    std::unique_ptr<peer_shares> own;
    peer_shares* peers = nullptr;

    result<bool> try_claim(const std::string& name, name_waiter& otherwise);
    // False: its message is under way.
    bool forget(const std::string& name, name_waiter& w) noexcept;
};

// False: `otherwise` hears when to try again.
result<bool> server_group::impl::try_claim(const std::string& name, name_waiter& otherwise)
{
    const std::scoped_lock lock(mutex);
    const auto [at, is_free] = names.try_emplace(name);
    if (is_free)
        return true;
    if (at->second.live)
        return error(std::errc::file_exists, "a session of this name lives");
    at->second.waiting.push_back(&otherwise);
    return false;
}

bool server_group::impl::forget(const std::string& name, name_waiter& w) noexcept
{
    const std::scoped_lock lock(mutex);
    const auto at = names.find(name);
    return at != names.end() && std::erase(at->second.waiting, &w) != 0;
}

server_group::server_group(random_source& random) : impl_(std::make_unique<impl>(random))
{
    impl_->own = std::make_unique<peer_shares>();
    impl_->peers = impl_->own.get();
}

server_group::server_group(peer_shares& peers, random_source& random) : impl_(std::make_unique<impl>(random))
{
    impl_->peers = &peers;
}

server_group::~server_group() = default;

task<result<session_name>> server_group::claim(reactor& shard, std::string name)
{
    for (;;) {
        event over;
        auto waiter = std::make_unique<name_waiter>(shard, over);
        const auto claimed = impl_->try_claim(name, *waiter);
        if (!claimed)
            co_return claimed.error();
        if (*claimed)
            co_return session_name(*this, std::move(name));
        name_waiter* const listed = waiter.release();
        const bool woken = co_await over.wait();
        if (woken)
            continue;
        // The message may have come between the stop and here; it is gone then.
        if (over.is_set())
            co_return error(std::errc::operation_canceled, "the path has ended");
        if (impl_->forget(name, *listed))
            delete listed;
        else
            listed->over = nullptr;
        co_return error(std::errc::operation_canceled, "the path has ended");
    }
}

bool server_group::add_session(std::uint32_t limit) noexcept
{
    const std::scoped_lock lock(impl_->mutex);
    if (impl_->sessions >= limit)
        return false;
    ++impl_->sessions;
    return true;
}

void server_group::remove_session() noexcept
{
    const std::scoped_lock lock(impl_->mutex);
    --impl_->sessions;
}

peer_shares& server_group::peers() const noexcept { return *impl_->peers; }

session_name::~session_name()
{
    if (group_ == nullptr)
        return;
    std::vector<name_waiter*> waiting;
    {
        const std::scoped_lock lock(group_->impl_->mutex);
        const auto at = group_->impl_->names.find(text_);
        waiting = std::move(at->second.waiting);
        group_->impl_->names.erase(at);
    }
    for (name_waiter* w : waiting)
        w->shard.post_remote(*w);
}

void session_name::set_live(bool live) noexcept
{
    if (group_ == nullptr)
        return;
    const std::scoped_lock lock(group_->impl_->mutex);
    group_->impl_->names.find(text_)->second.live = live;
}

std::optional<std::size_t> server_group::shard_of(std::span<const std::byte> private_data,
                                                  std::size_t shards) const noexcept
{
    const auto message = decode_connect_request(private_data);
    if (!message || shards == 0)
        return std::nullopt;
    return siphash(impl_->key, message->session.bytes) % shards;
}

} // namespace verbena::rtrs
