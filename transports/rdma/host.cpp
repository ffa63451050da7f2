// SPDX-License-Identifier: Apache-2.0
#include "host.hpp"

#include "context.hpp"
#include "ports.hpp"
#include "whole_domain.hpp"

#include <algorithm>

namespace verbena::rdma {

std::unique_ptr<host> make_host() { return std::make_unique<host_impl>(); }

result<std::unique_ptr<context>> host_impl::make_context(reactor& shard, lanes where, const options& o)
{
    return open_context(shard, where, o, *this, nullptr);
}

result<std::unique_ptr<context>> make_context(reactor& shard, lanes where, const options& o)
{
    auto own = std::make_unique<host_impl>();
    host_impl& all = *own;
    return open_context(shard, where, o, all, std::move(own));
}

result<std::unique_ptr<verbs::protection_domain>> host_impl::make_domain(std::string_view address)
{
    std::string device;
    if (!address.empty()) {
        auto found = device_with(address);
        if (!found)
            return found.error();
        device = std::move(*found);
    }
    return std::unique_ptr<verbs::protection_domain>(
        std::make_unique<whole_domain>(*this, std::move(device)));
}

void host_impl::enter(context_impl& c)
{
    const std::scoped_lock held(lock_);
    if (contexts_.empty())
        can_ = c.query();
    contexts_.push_back(&c);
}

void host_impl::leave(context_impl& c) noexcept
{
    const std::scoped_lock held(lock_);
    std::erase(contexts_, &c);
}

context_impl* host_impl::context_here() const noexcept
{
    const reactor* const shard = reactor::current();
    const std::scoped_lock held(lock_);
    const auto found = std::ranges::find_if(contexts_, [shard](context_impl* c) {
        return shard != nullptr ? &c->shard() == shard : c->shard().on_its_thread();
    });
    return found != contexts_.end() ? *found : nullptr;
}

} // namespace verbena::rdma
