// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>

#include <verbena/core/random.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>

#include <new>

namespace verbena::nfs::v4::pnfs {

service::service(server_commons& commons, verbs::device& device, std::span<shard* const> shards,
                 const options& o)
    : commons_(commons),
      is_usable_(!device.query().needs_local_keys && device.query().domains_across_shards),
      layouts_(commons.state.homes(), *this, o.layouts),
      data_(device, shards, system_random().key(), commons.state.options().epoch, o.data)
{
}

service::~service() = default;

void service::recall_layout(const files::recall_notice& n) noexcept { commons_.callbacks.recall_layout(n); }

task<void> service::tend()
{
    for (;;) {
        const bool goes_on = co_await sleep_for(commons_.state.options().lease);
        if (!goes_on)
            co_return;
        try {
            task<void> forgetting = data_.forget_idle();
            co_await forgetting;
        } catch (const std::bad_alloc&) { // a lease later
        }
    }
}

} // namespace verbena::nfs::v4::pnfs
