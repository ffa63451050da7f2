// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>

#include <verbena/core/random.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::nfs::v4::pnfs {

service::way::way(std::string t, place_of w, verbs::device& d, std::span<shard* const> shards,
                  std::uint64_t epoch, const data_server_limits& limits)
    : transport(std::move(t)),
      where(std::move(w)),
      device(d),
      data(d, shards, system_random().key(), epoch, limits)
{
}

service::service(server_commons& commons, std::span<shard* const> shards, const options& o)
    : commons_(commons),
      shards_(shards.begin(), shards.end()),
      limits_(o.data),
      layouts_(commons.state.homes(), *this, o.layouts)
{
}

service::~service() = default;

data_server* service::add_way(std::string_view transport, verbs::device& device, place_of where)
{
    const std::size_t count = way_count_.load(std::memory_order_relaxed);
    // A layout is made on whichever shard its client calls.
    if (count == most_ways || !device.query().domains_across_shards)
        return nullptr;
    ways_[count] = std::make_unique<way>(std::string(transport), std::move(where), device, shards_,
                                         commons_.state.options().epoch, limits_);
    ways_[count]->data.revoke_all = [this] { return revoke_all(); };
    way_count_.store(count + 1, std::memory_order_release);
    return &ways_[count]->data;
}

service::way* service::way_for(std::string_view transport, std::span<const std::string> served_by,
                               bool stores) noexcept
{
    way* first = nullptr;
    for (const auto& each : ways()) {
        if (!served_by.empty() && std::ranges::find(served_by, each->transport) == served_by.end())
            continue;
        if (stores && !each->device.query().grants_stores)
            continue;
        if (each->transport == transport)
            return each.get();
        first = first != nullptr ? first : each.get();
    }
    return first;
}

service::found service::find(clientid4 client, const deviceid4& device) const
{
    for (const auto& each : ways())
        if (auto known = each->data.find(client, device))
            return {std::move(known), each.get()};
    return {};
}

result<std::string> service::place_for(const found& f, std::string_view peer_address)
{
    return f.client->locks_memory ? f.client->where : f.by->where(peer_address);
}

data_server::counts service::connections() const noexcept
{
    data_server::counts all;
    for (const auto& each : ways()) {
        const data_server::counts own = each->data.count();
        all.clients += own.clients;
        all.connections += own.connections;
        all.accepted += own.accepted;
        all.rejected += own.rejected;
    }
    return all;
}

void service::recall_layout(const files::recall_notice& n) noexcept { commons_.callbacks.recall_layout(n); }

void service::recall_any_layout(files::client_id client, std::size_t keep) noexcept
{
    commons_.callbacks.recall_any_layout(client, keep);
}

// Those of all devices: when the first one goes nobody can call any more.
task<void> service::revoke_all()
{
    for (unsigned i = 0; i < commons_.state.homes(); ++i) {
        files::state_table& table = commons_.state.table(i);
        const auto revoke = [&table]() -> task<result<void>> {
            task<void> ending = table.end_recallable();
            co_await ending;
            co_return result<void>();
        };
        auto revoking = commons_.state.where(i).run(revoke);
        (void)co_await revoking; // a shard that stops has its table do so
    }
}

task<void> service::tend()
{
    for (;;) {
        const bool goes_on = co_await sleep_for(commons_.state.options().lease);
        if (!goes_on)
            co_return;
        for (const auto& each : ways()) {
            try {
                task<void> forgetting = each->data.forget_idle();
                co_await forgetting;
            } catch (const std::bad_alloc&) { // a lease later
            }
        }
    }
}

} // namespace verbena::nfs::v4::pnfs
