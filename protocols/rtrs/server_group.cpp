// SPDX-License-Identifier: Apache-2.0
#include "server_group.hpp"

#include <algorithm>
#include <utility>

namespace verbena::rtrs {

std::size_t server_group::impl::home_of(const uuid& session, std::size_t of) const noexcept
{
    return static_cast<std::size_t>(siphash(key, session.bytes) % of);
}

server_group::impl::member* server_group::impl::find(const reactor& r) noexcept
{
    const auto at = std::ranges::find_if(members, [&](const member& m) { return &m.at->reactor() == &r; });
    return at == members.end() ? nullptr : &*at;
}

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

bool server_group::impl::has_ending_session()
{
    const std::scoped_lock lock(mutex);
    return std::ranges::any_of(names, [](const auto& n) { return !n.second.live; });
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
    const std::size_t home = impl_->home_of(message->session, shards);
    return impl_->members.empty() ? home : (home + message->connection) % shards;
}

void server_group::spread_over(std::span<const shard* const> shards)
{
    impl_->members.clear();
    for (const shard* s : shards)
        impl_->members.push_back({s, nullptr});
}

} // namespace verbena::rtrs
