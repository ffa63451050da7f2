// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include "connect.hpp"
#include "queue_pair.hpp"

#include <algorithm>
#include <cassert>

namespace verbena::loop {

options::options()
{
    profile.provider = "loop";
    profile.remote_invalidate = true;
    profile.grant_per_queue_pair = true;
    profile.receive_not_ready_retry = true;
    profile.completion_means_delivered = true;
    profile.max_send_segments = max_segments;
    profile.max_outstanding_reads = 128;
    profile.max_private_data = 252;
}

// --- domain ---

class domain::registered final : public verbs::region {
public:
    registered(domain& d, std::span<std::byte> m) : domain_(d), memory(m), key_(d.context_.next_local_key())
    {
        d.regions_.push_back(this);
    }
    ~registered() override { std::erase(domain_.regions_, this); }
    std::uint32_t local_key() const noexcept override { return key_; }

private:
    domain& domain_;

public:
    const std::span<std::byte> memory;

private:
    std::uint32_t key_;
};

namespace {

bool contains(std::span<std::byte> whole, const std::byte* first, std::size_t size) noexcept
{
    return first >= whole.data() && size <= whole.size() &&
           static_cast<std::size_t>(first - whole.data()) <= whole.size() - size;
}

} // namespace

result<std::unique_ptr<verbs::region>> domain::register_memory(std::span<std::byte> memory)
{
    return std::unique_ptr<verbs::region>(std::make_unique<registered>(*this, memory));
}

bool domain::owns(const verbs::segment& s) const noexcept
{
    if (!context_.query().needs_local_keys || s.length == 0)
        return true;
    return std::ranges::any_of(regions_, [&s](const registered* r) {
        return r->local_key() == s.local_key && contains(r->memory, s.address, s.length);
    });
}

result<std::unique_ptr<verbs::grant>> domain::make_grant(std::span<std::byte> memory, verbs::access rights,
                                                         verbs::queue_pair* scope)
{
    if (memory.size() > 0xffffffff)
        return error(std::errc::invalid_argument, "a grant covers less than 4 GiB", memory.size());
    if (scope != nullptr && !context_.query().grant_per_queue_pair)
        return error(std::errc::operation_not_supported,
                     "the provider can't limit a grant to one queue pair");
    if (context_.query().needs_local_keys && std::ranges::none_of(regions_, [memory](const registered* r) {
            return contains(r->memory, memory.data(), memory.size());
        }))
        return error(std::errc::invalid_argument, "a grant lies in registered memory", memory.size());
    return std::unique_ptr<verbs::grant>(
        new steering::grant(context_.table(), this, memory, context_.next_offset(memory.size()), rights,
                            scope != nullptr ? static_cast<queue_pair*>(scope)->scope() : 0));
}

// --- context ---

context_impl::context_impl(fabric_impl& f, const loop::options& o)
    : fabric_(f), options_(o), table_(f.next_seed())
{
    verbs::capabilities& p = options_.profile;
    p.max_send_segments = std::clamp(p.max_send_segments, 1u, loop::options::max_segments);
    p.max_read_segments = std::clamp(p.max_read_segments, 1u, p.max_send_segments);
    p.max_outstanding_reads = std::min(p.max_outstanding_reads, loop::options::max_reads);
    p.write_with_immediate = false;
}

context_impl::~context_impl()
{
    assert(queue_pairs_.empty() && "a queue pair outlives its context");
    assert(table_.size() == 0 && "a grant outlives its context");
}

result<std::unique_ptr<verbs::protection_domain>> context_impl::make_domain()
{
    return std::unique_ptr<verbs::protection_domain>(std::make_unique<domain>(*this));
}

std::uint64_t context_impl::next_offset(std::size_t size) noexcept
{
    // A gap behind each: what runs over the end of one grant does not land in the next.
    const std::uint64_t offset = next_offset_;
    next_offset_ += (size + 0x1ffff) & ~std::uint64_t(0xffff);
    return offset;
}

void context_impl::remove_device() noexcept
{
    if (!std::exchange(present_, false))
        return;
    const error gone(std::errc::no_such_device, "the device was removed");
    for (queue_pair* q : queue_pairs_)
        q->end_at(shard().now(), gone);
    for (handshake* h : handshakes_)
        h->device_gone(gone);
}

void context_impl::lose_device(duration until) noexcept
{
    remove_device();
    shard().timers().arm(*this, shard().clock().now() + until);
}

void context_impl::return_device() noexcept
{
    timer::cancel();
    present_ = true;
}

} // namespace verbena::loop
