// SPDX-License-Identifier: Apache-2.0
#include "steering.hpp"

#include "queue_pair.hpp"

#include <verbena/core/task/yield.hpp>

namespace verbena::iwarp {

steering_check steering_table::check(std::uint32_t stag, std::uint64_t offset, std::uint64_t size,
                                     verbs::access want, const domain& d, steering::scope_id scope,
                                     bool read_source) const noexcept
{
    const steering::finding f = table::check(stag, offset, size, want, d, scope);
    const auto code = [&] {
        switch (f.fault) {
        case steering::fault::none: break;
        case steering::fault::invalid_tag:
            return read_source ? wire::remote_invalid_stag : wire::ddp_invalid_stag;
        case steering::fault::not_associated:
            return read_source ? wire::remote_not_associated : wire::ddp_not_associated;
        case steering::fault::access: return wire::remote_access;
        case steering::fault::wrap: return read_source ? wire::remote_wrap : wire::ddp_wrap;
        case steering::fault::bounds: return read_source ? wire::remote_bounds : wire::ddp_bounds;
        }
        return wire::terminate_code{};
    };
    return {f.address, code(), f.rule, f.store};
}

// --- domain ---

bool domain::is_bulk(const steering::record& r) noexcept
{
    return r.size() >= bulk && verbs::allows(r.rights(), verbs::access::remote_write);
}

void domain::on_bound(const steering::record& r) noexcept
{
    if (is_bulk(r))
        bulk_grants_.fetch_add(1, std::memory_order_relaxed);
}

void domain::on_unbound(const steering::record& r) noexcept
{
    if (is_bulk(r))
        bulk_grants_.fetch_sub(1, std::memory_order_relaxed);
}

void domain::used_at(const steering::lane& l) noexcept
{
    const reactor* known = nullptr;
    if (!only_.compare_exchange_strong(known, &l.shard(), std::memory_order_seq_cst) && known != &l.shard())
        is_shared_.store(true, std::memory_order_seq_cst);
}

bool domain::is_used_beside(const steering::lane* here) const noexcept
{
    const reactor* const only = only_.load(std::memory_order_seq_cst);
    return is_shared() || (only != nullptr && (here == nullptr || only != &here->shard()));
}

task<result<void>> domain::make_grants(std::span<verbs::grant_request> batch)
{
    for (const auto& r : batch) {
        if (r.memory.size() > 0xffffffff)
            co_return error(std::errc::invalid_argument, "a grant covers less than 4 GiB", r.memory.size());
        if (r.store != nullptr && r.store_offset > ~std::uint64_t(0) - r.store_length)
            co_return error(std::errc::invalid_argument, "a grant of a store beyond the last offset",
                            r.store_offset);
    }
    const steering::lane* const here = device_.shards().here();
    steering::magazine* const at = here != nullptr ? here->slots() : nullptr;
    const auto terms_of = [this](verbs::grant_request& r) {
        auto* const scope = static_cast<connection*>(r.scope);
        steering::tag_terms terms{*this, r};
        // Any value would do, and the address reads well in a capture. Of a store the check yields the offset in it.
        terms.base = r.store != nullptr ? r.store_offset : reinterpret_cast<std::uint64_t>(r.memory.data());
        if (scope != nullptr) {
            terms.scope = scope->scope();
            terms.used_at = &scope->lane();
        }
        return terms;
    };
    co_return device_.table().make_all(batch, at, terms_of);
}

task<void> domain::revoke(std::span<verbs::grant> batch)
{
    steering::quiescence& shards = device_.shards();
    const steering::lane* const here = shards.here();
    bool elsewhere = false; // somebody may be at their memory
    bool has_stores = false;
    for (const auto& g : batch) {
        if (auto* const r = static_cast<steering::record*>(g.slot()); r != nullptr) {
            r->retire();
            elsewhere |= r->is_used_beside(here);
            has_stores |= r->store() != nullptr;
        }
    }
    const std::uint64_t epoch = elsewhere ? shards.begin(here) : 0;
    if (steering::lane* const at = epoch != 0 ? shards.make_here() : nullptr; at != nullptr) {
        steering::awaited_passing all;
        shards.wait(*at, epoch, all);
        co_await all.done.wait_shielded();
    }
    while (!shards.is_over(epoch)) // there was no memory to wait by
        co_await yield();
    if (has_stores) {
        task<void> waiting = steering::until_unused(batch);
        co_await waiting;
    }
    for (auto& g : batch) {
        if (auto* const r = static_cast<steering::record*>(g.release()); r != nullptr)
            device_.table().free(*r, here != nullptr ? here->slots() : nullptr);
    }
}

task<result<std::unique_ptr<verbs::shared_receive_queue>>>
domain::make_shared_receive_queue(const verbs::shared_receive_queue_options& o)
{
    co_return std::unique_ptr<verbs::shared_receive_queue>(std::make_unique<shared_receives>(o));
}

namespace {
class plain_region final : public verbs::region {
public:
    std::uint32_t local_key() const noexcept override { return 0; }
};
} // namespace

task<result<std::unique_ptr<verbs::region>>> domain::register_memory(std::span<std::byte>)
{
    co_return std::unique_ptr<verbs::region>(std::make_unique<plain_region>());
}

} // namespace verbena::iwarp
