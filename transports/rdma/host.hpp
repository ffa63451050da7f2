// SPDX-License-Identifier: Apache-2.0
// All RDMA devices of the host, on all shards that use them.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/transports/rdma.hpp>

#include <memory>
#include <mutex>
#include <vector>

namespace verbena::rdma {

class context_impl;

class host_impl final : public host {
public:
    host_impl()
    {
        can_.domains_across_shards = true;
    } // whatever the devices, which are asked when there is a context
    const verbs::capabilities& query() const noexcept override { return can_; }
    result<std::unique_ptr<verbs::protection_domain>> make_domain(std::string_view address) override;
    result<std::unique_ptr<context>> make_context(reactor& shard, lanes where, const options& o) override;

    /// A context came, on its shard.
    void enter(context_impl& c);
    void leave(context_impl& c) noexcept;
    /// One of the reactor that runs here or, where none does, of this thread; or nullptr. Any thread.
    context_impl* context_here() const noexcept;

private:
    verbs::capabilities can_;
    mutable std::mutex lock_; // for what follows
    std::vector<context_impl*> contexts_;
};

} // namespace verbena::rdma
