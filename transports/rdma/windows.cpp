// SPDX-License-Identifier: Apache-2.0
// Grants by memory windows, of either type, and how grants of any kind end.
#include "domain.hpp"

#include "context.hpp"
#include "queue_pair.hpp"
#include "whole_domain.hpp"

#include <algorithm>
#include <cerrno>

namespace verbena::rdma {
namespace {

unsigned rights_of(const verbs::grant_request& r) noexcept
{
    return flag_if(verbs::allows(r.rights, verbs::access::remote_read), IBV_ACCESS_REMOTE_READ) |
           flag_if(verbs::allows(r.rights, verbs::access::remote_write), IBV_ACCESS_REMOTE_WRITE);
}

} // namespace

task<result<void>> domain::more_windows(domain_part& p, std::size_t wanted, ibv_mw_type type)
{
    std::vector<ibv_mw*>& free = p.free_windows(type);
    if (free.size() >= wanted)
        co_return result<void>();
    const std::size_t count = std::max<std::size_t>(16, wanted);
    std::vector<ibv_mw*> made;
    made.reserve(count);
    auto work = [pd = p.pd, &made, count, type]() -> int {
        while (made.size() < count) {
            ibv_mw* w = ::ibv_alloc_mw(pd, type);
            if (w == nullptr)
                return errno;
            made.push_back(w);
        }
        return 0;
    };
    const int failed = co_await context_.pool().run(std::move(work));
    free.insert(free.end(), made.begin(), made.end());
    if (free.size() < wanted)
        co_return error::from_errno(failed != 0 ? failed : ENOMEM, "the device has no more memory windows");
    co_return result<void>();
}

// Until `q` has room for `entries` of our own; false: it has ended. It may be destroyed meanwhile, if `q` is nullptr then:
// so what is waited for is not its own.
task<bool> domain::room_at(queue_pair* const& q, domain_part& p, std::size_t entries)
{
    while (q != nullptr && q->connected() && !q->has_room(entries)) {
        p.moved.reset();
        co_await p.moved.wait_shielded();
    }
    co_return q != nullptr && q->connected();
}

task<result<void>> domain::bind_windows(std::span<verbs::grant_request*> batch, queue_pair& scope)
{
    domain_part& p = part(scope.part());
    queue_pair* const there = &scope; // which the caller keeps
    // Others may take windows while this waits for room, so both must hold at once.
    for (;;) {
        const auto windows = co_await more_windows(p, batch.size(), IBV_MW_TYPE_2);
        if (!windows)
            co_return windows.error();
        const bool room = co_await room_at(there, p, batch.size());
        if (!room)
            co_return error(std::errc::not_connected, "a grant for a queue pair that is not connected");
        if (p.free_type_2.size() >= batch.size())
            break;
    }
    std::vector<ibv_mr*> regions;
    for (const auto* r : batch) {
        regions.push_back(region_of(r->memory, scope.part()));
        if (regions.back() == nullptr)
            co_return error(std::errc::invalid_argument, "a grant lies in memory that the device knows",
                            r->memory.size());
    }
    std::vector<ibv_send_wr> requests(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
        auto g = std::make_unique<memory_grant>(*this, batch[i]->memory);
        g->window_ = p.free_type_2.back();
        p.free_type_2.pop_back();
        g->part_ = &p;
        g->key_ = ::ibv_inc_rkey(g->window_->rkey);
        g->standing_ = true;
        ibv_send_wr& w = requests[i];
        w.opcode = IBV_WR_BIND_MW;
        w.bind_mw.mw = g->window_;
        w.bind_mw.rkey = g->key_;
        w.bind_mw.bind_info.mr = regions[i];
        w.bind_mw.bind_info.addr = reinterpret_cast<std::uint64_t>(g->memory_.data());
        w.bind_mw.bind_info.length = g->memory_.size();
        w.bind_mw.bind_info.mw_access_flags = rights_of(*batch[i]);
        p.grants[g->key_] = g.get();
        scope.add_window(*g);
        give(*batch[i], std::move(g));
    }
    auto posted = scope.post_internal(requests, nullptr);
    for (auto* r : batch) {
        auto& g = static_cast<memory_grant&>(*r->made.slot());
        if (posted)
            g.window_->rkey = g.key_; // what the device knows it by from now on
        else
            g.standing_ = false; // never bound: the window is free
    }
    add(context_.counts().window_binds, batch.size());
    co_return posted;
}

// --- type 1 ---

queue_pair* domain_part::binder(std::size_t entries) const noexcept
{
    constexpr std::size_t looked_at = 16;
    queue_pair* best = nullptr;
    for (queue_pair* q : std::span(pairs).first(std::min(pairs.size(), looked_at))) {
        if (q->has_room(entries) && (best == nullptr || q->outstanding() < best->outstanding()))
            best = q;
    }
    return best;
}

// Their keys are told when they work: another queue pair than the one that binds may tell them to its peer. False: none
// of the batch is made.
task<bool> domain::bind_type_1(std::span<verbs::grant_request*> batch, std::size_t number)
{
    domain_part& p = part(number);
    if (p.binder(batch.size()) == nullptr)
        co_return false;
    const auto windows = co_await more_windows(p, batch.size(), IBV_MW_TYPE_1);
    // Others may have taken windows or room meanwhile.
    queue_pair* const by = p.binder(batch.size());
    if (!windows || by == nullptr || p.free_type_1.size() < batch.size())
        co_return false;
    if (std::ranges::any_of(batch, [&](const auto* r) { return region_of(r->memory, number) == nullptr; }))
        co_return false;
    std::vector<type_1_bind> binds;
    binds.reserve(batch.size());
    for (auto* r : batch) {
        auto g = std::make_unique<memory_grant>(*this, r->memory);
        g->window_ = p.free_type_1.back();
        p.free_type_1.pop_back();
        g->part_ = &p;
        if (r->renewable) {
            g->over_ = region_of(g->memory_, number);
            g->rights_ = rights_of(*r);
        }
        g->standing_ = true; // as far as anybody can tell: one that fails is taken away, and not used again
        binds.push_back({g->window_,
                         {region_of(g->memory_, number), reinterpret_cast<std::uint64_t>(g->memory_.data()),
                          g->memory_.size(), rights_of(*r)}});
        give(*r, std::move(g));
    }
    internal_outcome outcome;
    if (by->bind_type_1(binds, &outcome))
        co_await outcome.done.wait_shielded();
    for (auto* r : batch) {
        auto& g = static_cast<memory_grant&>(*r->made.slot());
        if (outcome.good) {
            g.key_ = g.window_->rkey;
            p.grants[g.key_] = &g;
        } else {
            r->keep = std::exchange(g.keep_, {}); // for whoever grants it in another way
            r->made = verbs::grant();
        }
    }
    if (outcome.good)
        add(context_.counts().window_binds, batch.size());
    co_return outcome.good;
}

// By a bind of nothing. False: the windows are as they were, or nobody knows.
task<bool> domain::unbind_type_1(std::span<memory_grant*> batch, domain_part& p)
{
    queue_pair* const by = p.binder(batch.size());
    if (by == nullptr)
        co_return false;
    const auto number = static_cast<std::size_t>(
        std::ranges::find(parts_, &p, &std::unique_ptr<domain_part>::get) - parts_.begin());
    std::vector<type_1_bind> binds;
    binds.reserve(batch.size());
    for (memory_grant* g : batch) {
        // rxe's provider reads the region even when there is nothing to bind to.
        ibv_mr* const memory = region_of(g->memory_, number);
        if (memory == nullptr)
            co_return false;
        binds.push_back({g->window_, {memory, reinterpret_cast<std::uint64_t>(g->memory_.data()), 0, 0}});
    }
    internal_outcome outcome;
    if (by->bind_type_1(binds, &outcome))
        co_await outcome.done.wait_shielded();
    for (memory_grant* g : batch)
        g->standing_ = !outcome.good;
    co_return outcome.good;
}

// --- revoking ---

// Each is asked by itself, which costs a doorbell and a completion, but is right whatever their queue pairs.
task<void> domain::invalidate(std::span<memory_grant*> batch)
{
    for (memory_grant* g : batch) {
        if (g->scope_ == nullptr)
            continue;
        domain_part& p = *g->part_;
        const bool room = co_await room_at(g->scope_, p, 1);
        queue_pair* const scope = g->scope_;
        if (room && scope != nullptr && g->standing_) {
            ibv_send_wr w{};
            w.opcode = IBV_WR_LOCAL_INV;
            w.invalidate_rkey = g->key_;
            internal_outcome outcome;
            if (scope->post_internal({&w, 1}, &outcome)) {
                co_await outcome.done.wait_shielded();
                if (outcome.good)
                    g->standing_ = false;
            }
        }
        // An end under way takes the window with it.
        while (g->scope_ != nullptr && g->scope_->ending()) {
            p.moved.reset();
            co_await p.moved.wait_shielded();
        }
    }
}

task<void> domain::revoke(std::span<verbs::grant> batch)
{
    // All memory first, so that nothing is taken from a grant that is not taken back then.
    std::vector<memory_grant::left_behind> regions;
    std::vector<ibv_mw*> windows;
    std::vector<memory_grant*> type_1;
    std::vector<memory_grant*> type_2;
    std::vector<memory_grant*> kernels; // to be asked for
    for (auto* v : {&type_1, &type_2, &kernels})
        v->reserve(batch.size());
    regions.reserve(batch.size());
    windows.reserve(batch.size());
    for (auto& one : batch) {
        auto* g = static_cast<memory_grant*>(one.slot());
        if (g == nullptr)
            continue;
        if (g->region_ != nullptr) {
            kernels.push_back(g);
        } else if (g->standing_) {
            const bool first = g->window_ != nullptr && g->window_->type == IBV_MW_TYPE_1;
            (first ? type_1 : type_2).push_back(g);
        }
    }
    co_await invalidate(type_2);
    for (std::span<memory_grant*> rest = type_1; !rest.empty();) {
        domain_part& p = *rest.front()->part_;
        std::size_t count = 1;
        while (count < rest.size() && count < internal_depth / 2 && rest[count]->part_ == &p)
            ++count;
        const auto some = rest.first(count);
        const bool unbound = co_await unbind_type_1(some, p);
        for (memory_grant* g : some) {
            if (!unbound)
                kernels.push_back(g);
        }
        rest = rest.subspan(count);
    }
    task<void> taking = all_.take_away(regions, context_.pool());
    for (memory_grant* g : kernels) {
        if (g->region_ != nullptr)
            regions.push_back({std::exchange(g->region_, nullptr), std::exchange(g->keep_, {})});
        else
            windows.push_back(std::exchange(g->window_, nullptr));
        g->over_ = nullptr;
        g->standing_ = false;
    }
    if (!regions.empty())
        co_await taking;
    if (!windows.empty()) {
        auto work = [&windows] {
            for (ibv_mw* mw : windows)
                ::ibv_dealloc_mw(mw);
        };
        co_await context_.pool().run(std::move(work));
    }
    for (auto& one : batch)
        one = verbs::grant();
}

} // namespace verbena::rdma
