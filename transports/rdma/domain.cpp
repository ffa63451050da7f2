// SPDX-License-Identifier: Apache-2.0
#include "domain.hpp"

#include "context.hpp"
#include "queue_pair.hpp"
#include "shared_receives.hpp"
#include "whole_domain.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::rdma {

namespace {

// Keys of one domain must mean nothing in another.
constexpr unsigned index_bits = 20;
constexpr std::uint32_t index_mask = (1U << index_bits) - 1;
std::uint32_t next_domain() noexcept
{
    static std::atomic<std::uint32_t> last{0};
    return (last.fetch_add(1, std::memory_order_relaxed) + 1) & 0xfff;
}

} // namespace

error registration_error(int code, std::size_t bytes) noexcept
{
    // siw goes by the limit even for root, and libsiw loses the errno.
    if (code == 0)
        code = ENOMEM;
    if (code == ENOMEM)
        return error::from_errno(
            code,
            "register memory: the limit of locked memory is spent; raise it with `ulimit -l` or, "
            "in a unit, LimitMEMLOCK=infinity",
            bytes);
    return error::from_errno(code, "register memory", bytes);
}

// --- registered_memory ---

void registered_memory::publish()
{
    domain& d = domain_;
    const std::scoped_lock held(d.whole().memory_lock());
    const auto free = std::ranges::find(d.by_id_, nullptr);
    id_ = d.number_ << index_bits | (static_cast<std::uint32_t>(free - d.by_id_.begin()) + 1);
    if (free == d.by_id_.end())
        d.by_id_.push_back(this);
    else
        *free = this;
    d.by_address_[memory_.data()] = this;
    add(d.owner().counts().registered_bytes, memory_.size());
}

registered_memory::~registered_memory()
{
    if (id_ != 0) {
        const std::scoped_lock held(domain_.whole().memory_lock());
        domain_.by_id_[(id_ & index_mask) - 1] = nullptr;
        const auto found = domain_.by_address_.find(memory_.data());
        if (found != domain_.by_address_.end() && found->second == this)
            domain_.by_address_.erase(found);
    }
    for (ibv_mr* mr : keys_) {
        if (mr != nullptr)
            ::ibv_dereg_mr(mr);
    }
    if (id_ == 0)
        return;
    add(domain_.owner().counts().registered_bytes, 0 - std::uint64_t(memory_.size()));
}

result<void> registered_memory::add_parts() noexcept
{
    try {
        keys_.reserve(domain_.parts_.size());
    } catch (const std::bad_alloc&) {
        return error(std::errc::not_enough_memory, "the keys of memory", memory_.size());
    }
    while (keys_.size() < domain_.parts_.size() && !memory_.empty()) {
        const domain_part& p = *domain_.parts_[keys_.size()];
        if (p.on.gone()) {
            keys_.push_back(nullptr);
            continue;
        }
        errno = 0; // libsiw may leave it as it was
        ibv_mr* mr = ::ibv_reg_mr(p.pd, memory_.data(), memory_.size(), domain_.rights_of_memory(p));
        if (mr == nullptr)
            return registration_error(errno, memory_.size());
        keys_.push_back(mr);
    }
    return {};
}

void registered_memory::drop_part(std::size_t number) noexcept
{
    if (keys_.size() <= number)
        return;
    if (keys_.back() != nullptr)
        ::ibv_dereg_mr(keys_.back());
    keys_.pop_back();
}

// --- memory_grant ---

void memory_grant::drop() noexcept
{
    reactor& home = domain_.owner().shard();
    if (home.is_here()) {
        delete this;
        return;
    }
    domain_.whole().away().fetch_add(1);
    home.post_remote(*this);
}

memory_grant::left_behind memory_grant::leave() noexcept
{
    left_behind left{std::exchange(region_, nullptr), std::exchange(keep_, {})};
    delete this;
    return left;
}

void memory_grant::deliver() noexcept
{
    whole_domain& all = domain_.whole();
    delete this;
    all.away().fetch_sub(1);
}

bool memory_grant::is_renewable_in(const domain& d, const domain_part& p) const noexcept
{
    // All parts of a domain on one device have one ibv_pd, so their queue pairs may bind each other's windows.
    return over_ != nullptr && &domain_.whole() == &d.whole() && part_->on.verbs() == p.on.verbs();
}

void memory_grant::revoke() noexcept
{
    // A device that came back may have given the key to another grant.
    if (part_ != nullptr) {
        if (const auto i = part_->grants.find(key_); i != part_->grants.end() && i->second == this)
            part_->grants.erase(i);
    }
    key_ = 0;
    if (window_ != nullptr) {
        // Unbound by the peer, it can be bound again. Else only taking it away is certain at once.
        bool is_kept = !standing_;
        try {
            if (is_kept)
                part_->free_windows(window_->type).push_back(window_);
        } catch (const std::bad_alloc&) {
            is_kept = false;
        }
        if (!is_kept)
            ::ibv_dealloc_mw(window_);
        window_ = nullptr;
        over_ = nullptr;
    } else if (scope_ != nullptr && standing_) {
        scope_->cut_off(); // which has the window, and ends
    }
    scope_ = nullptr;
    if (ibv_mr* const region = std::exchange(region_, nullptr);
        region != nullptr && ::ibv_dereg_mr(region) != 0) {
        ibv_context* const on = region->context;
        domain_.whole().hold(region, std::exchange(keep_, {}));
        // Queue pairs of other shards stay. Whoever needs a fence revokes the grant instead.
        domain_.owner().end_pairs(domain_.whole(), on);
    }
    standing_ = false;
    unlink();
}

// --- pools ---

// What one pool has. try_acquire() can't wait, so memory that comes later is registered while the shard holds.
class domain::pool_memory final : public buffer_pool_observer {
public:
    pool_memory(domain& d, const buffer_pool& p) noexcept : domain_(d), pool_(&p) {}
    /// Another one may stand where a pool has gone.
    bool is_of(const buffer_pool& p) const noexcept { return is_linked() && pool_ == &p; }
    bool on_added(std::span<std::byte> memory) noexcept override
    {
        try {
            return try_to_add(memory);
        } catch (const std::bad_alloc&) { // the pool gives it back, and whoever asked for it waits
            add(domain_.context_.counts().registrations_failed, 1);
            return false;
        }
    }
    bool try_to_add(std::span<std::byte> memory)
    {
        auto piece = std::make_unique<registered_memory>(domain_, memory);
        if (!piece->add_parts()) {
            if (domain_.context_.counts().registrations_failed.load(std::memory_order_relaxed) == 0)
                log(log_level::warning, "rdma",
                    "buffers can't be registered: raise the limit of locked memory (ulimit -l, LimitMEMLOCK)",
                    {{"bytes", memory.size()}});
            add(domain_.context_.counts().registrations_failed, 1);
            return false;
        }
        piece->publish();
        pieces_.emplace(memory.data(), std::move(piece));
        return true;
    }
    void on_removed(std::span<std::byte> memory) noexcept override { pieces_.erase(memory.data()); }

private:
    domain& domain_;
    const buffer_pool* const pool_;
    std::map<std::byte*, std::unique_ptr<registered_memory>> pieces_;
};

// --- domain ---

domain::domain(context_impl& c, whole_domain& all) noexcept : context_(c), all_(all), number_(next_domain())
{
}

domain::~domain()
{
    pools_.clear();
    for (const auto& p : parts_) {
        for (const auto* free : {&p->free_type_1, &p->free_type_2}) {
            for (ibv_mw* w : *free)
                ::ibv_dealloc_mw(w);
        }
    }
}

int domain::rights_of_memory(const domain_part& p) const noexcept
{
    const device_limits& l = p.on.limits();
    int rights = IBV_ACCESS_LOCAL_WRITE;
    if (l.grants != grant_kind::region || l.can.renewable_grants)
        rights |= IBV_ACCESS_MW_BIND;
    // The key of a Read's sink travels to the peer there (RFC 5040 5.2), so that memory is open to who learns it.
    if (l.read_sink_remote_write)
        rights |= IBV_ACCESS_REMOTE_WRITE;
    return rights;
}

task<void> domain::begin_change()
{
    while (changing_)
        co_await changed_.wait_shielded();
    changing_ = true;
    changed_.reset();
}

// The end of what begin_change() began.
class domain::change {
public:
    explicit change(domain& d) noexcept : domain_(d) {}
    change(const change&) = delete;
    ~change()
    {
        domain_.changing_ = false;
        domain_.changed_.set();
    }

private:
    domain& domain_;
};

task<result<std::size_t>> domain::part_on(device& d)
{
    co_await begin_change();
    const change here(*this);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (&parts_[i]->on == &d)
            co_return i;
    }
    auto made = std::make_unique<domain_part>(d);
    auto create = [this, p = made.get()]() -> result<void> {
        const auto pd = all_.device_domain(p->on.verbs());
        if (!pd)
            return pd.error();
        p->pd = *pd;
        return {};
    };
    result<void> done = co_await context_.pool().run(std::move(create));
    if (!done)
        co_return done.error();
    const std::size_t number = parts_.size();
    const std::scoped_lock held(all_.memory_lock());
    parts_.push_back(std::move(made));
    for (std::size_t i = 0; i < by_id_.size() && done; ++i) {
        if (by_id_[i] != nullptr)
            done = by_id_[i]->add_parts();
    }
    if (done)
        co_return number;
    // All of it or nothing: the next queue pair must not meet half a part.
    add(context_.counts().registrations_failed, 1);
    for (registered_memory* r : by_id_) {
        if (r != nullptr)
            r->drop_part(number);
    }
    parts_.pop_back();
    co_return done.error();
}

// For a grant that no queue pair limits: its key is of one device.
task<result<std::size_t>> domain::any_part()
{
    if (!all_.device().empty()) {
        for (std::size_t i = 0; i < parts_.size(); ++i)
            if (!parts_[i]->on.gone() &&
                all_.device() == ::ibv_get_device_name(parts_[i]->on.verbs()->device))
                co_return i;
        auto named = context_.only_device(all_.device());
        if (!named)
            co_return named.error();
        co_return co_await part_on(**named);
    }
    std::size_t there = 0;
    std::size_t connected = 0;
    std::size_t last_there = 0;
    std::size_t last_connected = 0;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        if (parts_[i]->on.gone())
            continue;
        ++there;
        last_there = i;
        if (!parts_[i]->pairs.empty()) {
            ++connected;
            last_connected = i;
        }
    }
    if (there == 1)
        co_return last_there;
    // A connection that came again by another device leaves the part of the first behind.
    if (connected == 1)
        co_return last_connected;
    if (connected > 1)
        co_return error(std::errc::operation_not_supported,
                        "a grant without a queue pair needs a domain that is connected by one device");
    auto d = context_.only_device({});
    if (!d)
        co_return d.error();
    co_return co_await part_on(**d);
}

task<result<std::unique_ptr<verbs::region>>> domain::register_memory(std::span<std::byte> memory)
{
    co_await begin_change();
    const change here(*this);
    auto region = std::make_unique<registered_memory>(*this, memory);
    auto work = [r = region.get()] { return r->add_parts(); };
    const result<void> done = co_await context_.pool().run(std::move(work));
    if (!done) {
        add(context_.counts().registrations_failed, 1);
        co_return done.error();
    }
    region->publish();
    co_return std::unique_ptr<verbs::region>(std::move(region));
}

task<result<void>> domain::add_pool(buffer_pool& pool)
{
    if (std::ranges::any_of(pools_, [&pool](const auto& known) { return known->is_of(pool); }))
        co_return result<void>();
    auto memory = std::make_unique<pool_memory>(*this, pool);
    if (!pool.observe(*memory))
        co_return registration_error(ENOMEM, 0);
    pools_.push_back(std::move(memory));
    co_return result<void>();
}

const registered_memory* domain::find(std::span<const std::byte> memory) const noexcept
{
    // Regions may overlap; the nearest that begins at or before it covers it as a rule.
    auto i = by_address_.upper_bound(memory.data());
    if (i != by_address_.begin() && std::prev(i)->second->covers(memory))
        return std::prev(i)->second;
    const auto other = std::ranges::find_if(
        by_id_, [memory](const registered_memory* r) { return r != nullptr && r->covers(memory); });
    return other != by_id_.end() ? *other : nullptr;
}

const registered_memory* domain::by_key(std::uint32_t local_key) const noexcept
{
    const std::size_t index = (local_key & index_mask) - 1;
    return local_key >> index_bits == number_ && index < by_id_.size() ? by_id_[index] : nullptr;
}

ibv_mr* domain::known_on(const registered_memory& r, ibv_context* verbs) const noexcept
{
    const auto part = std::ranges::find_if(parts_, [verbs](const auto& p) { return p->on.verbs() == verbs; });
    const auto number = static_cast<std::size_t>(part - parts_.begin());
    return part != parts_.end() && r.knows(number) ? r.with(number) : nullptr;
}

ibv_mr* domain::region_of(std::span<const std::byte> memory, std::size_t part) const noexcept
{
    if (const registered_memory* const own = find(memory); own != nullptr)
        return own->knows(part) ? own->with(part) : nullptr;
    return all_.find_elsewhere(*this, memory, parts_[part]->on.verbs());
}

bool domain::is_registered(std::span<const std::byte> memory) const noexcept
{
    return all_.is_registered(memory);
}

bool domain::find_key(const verbs::segment& s, std::size_t part, std::uint32_t& key) const noexcept
{
    const registered_memory* const r = s.local_key == 0 ? find({s.address, s.length}) : by_key(s.local_key);
    if (r != nullptr) {
        if (!r->covers({s.address, s.length}) || !r->knows(part))
            return false;
        key = r->key(part);
        return true;
    }
    // A lease of another shard's pool, or its region: it is seldom so, and costs a lock.
    const ibv_mr* const other = all_.find_elsewhere(*this, s, parts_[part]->on.verbs());
    if (other == nullptr)
        return false;
    key = other->lkey;
    return true;
}

result<void> domain::check_receives(std::span<const verbs::receive_request> batch, std::size_t part) const
{
    for (const auto& r : batch) {
        std::uint32_t key = 0;
        if (r.segment.length != 0 && !find_key(r.segment, part, key))
            return error(std::errc::bad_address, "a receive outside of the memory that its key names");
    }
    return {};
}

void domain::note_pair_over() noexcept
{
    for (pairs_watch* w = watches_.front(); w != nullptr;) {
        pairs_watch* const next = watches_.next(*w);
        w->on_pair_over();
        w = next;
    }
}

void domain::invalidated(std::uint32_t key, std::size_t part) noexcept
{
    const auto& grants = parts_[part]->grants;
    if (const auto found = grants.find(key); found != grants.end())
        found->second->standing_ = false;
}

void domain::give(verbs::grant_request& to, std::unique_ptr<memory_grant> g) noexcept
{
    g->keep_ = std::exchange(to.keep, {});
    to.made = verbs::grant(*g.release());
}

task<result<void>> domain::make_grants(std::span<verbs::grant_request> batch)
{
    std::vector<verbs::grant_request*> wide;
    std::vector<verbs::grant_request*> renewable;
    std::vector<verbs::grant_request*> narrow;
    std::vector<verbs::grant_request*> own;
    for (auto& r : batch) {
        if (r.store != nullptr)
            co_return error(std::errc::operation_not_supported,
                            "a device grants memory, and no bytes of a file: those are for iwarp");
        if (r.memory.size() > 0xffffffff)
            co_return error(std::errc::invalid_argument, "a grant covers less than 4 GiB", r.memory.size());
        if (r.own_region && (r.scope != nullptr || r.renewable))
            co_return error(std::errc::invalid_argument,
                            "a grant with a region of its own is for all queue pairs, and not renewable");
        if (!r.own_region && !is_registered(r.memory))
            co_return error(std::errc::invalid_argument, "a grant lies in registered memory",
                            r.memory.size());
        if (r.memory.empty()) { // nothing to touch, so nothing to make
            give(r, std::make_unique<memory_grant>(*this, r.memory));
            continue;
        }
        if (r.own_region) {
            own.push_back(&r);
            continue;
        }
        if (r.renewable && (r.scope != nullptr || !context_.query().renewable_grants))
            co_return error(std::errc::operation_not_supported,
                            "the device has no memory windows of type 1, by which a grant is renewed");
        if (r.scope == nullptr) {
            (r.renewable ? renewable : wide).push_back(&r);
            continue;
        }
        auto& scope = static_cast<queue_pair&>(*r.scope);
        if (!context_.query().grant_per_queue_pair || !scope.on().limits().can.grant_per_queue_pair)
            co_return error(std::errc::operation_not_supported,
                            "the provider can't limit a grant to one queue pair");
        if (&scope.owner() != &context_)
            co_return error(std::errc::invalid_argument,
                            "a grant for one queue pair is made on that queue pair's shard");
        narrow.push_back(&r);
    }
    result<void> done;
    for (std::size_t i = 0; i < narrow.size() && done;) {
        // A batch for each queue pair.
        std::size_t end = i + 1;
        while (end < narrow.size() && narrow[end]->scope == narrow[i]->scope && end - i < internal_depth / 2)
            ++end;
        done = co_await bind_windows(std::span(narrow).subspan(i, end - i),
                                     static_cast<queue_pair&>(*narrow[i]->scope));
        i = end;
    }
    if (done && !wide.empty())
        done = co_await make_wide_grants(wide, false);
    if (done && !renewable.empty())
        done = co_await make_wide_grants(renewable, true);
    if (done && !own.empty()) {
        const auto number = co_await any_part();
        if (number)
            done = co_await register_grants(own, *parts_[*number]);
        else
            done = number.error();
    }
    if (!done) {
        for (auto& r : batch)
            r.made = verbs::grant();
    }
    co_return done;
}

task<result<void>> domain::make_wide_grants(std::span<verbs::grant_request*> batch, bool renewable)
{
    auto number = co_await any_part();
    if (!number)
        co_return number.error();
    domain_part& p = *parts_[*number];
    result<void> done;
    while (!batch.empty() && done) {
        const auto some = batch.first(std::min<std::size_t>(batch.size(), internal_depth / 2));
        bool bound = false;
        if (renewable || p.on.limits().grants == grant_kind::type_1_window)
            bound = co_await bind_type_1(some, *number);
        // A region serves as well, where nothing can bind a window.
        if (!bound && renewable)
            done = error(std::errc::not_connected, "no queue pair of the domain can bind a renewable grant");
        else if (!bound)
            done = co_await register_grants(some, p);
        batch = batch.subspan(some.size());
    }
    co_return done;
}

task<result<void>> domain::register_grants(std::span<verbs::grant_request*> batch, domain_part& p)
{
    // All memory first: a region that was made is a grant's in any case.
    std::vector<ibv_mr*> made(batch.size());
    std::vector<std::unique_ptr<memory_grant>> grants;
    grants.reserve(batch.size());
    for (const auto* r : batch)
        grants.push_back(std::make_unique<memory_grant>(*this, r->memory));
    auto work = [&p, batch, &made]() -> int {
        for (std::size_t i = 0; i < batch.size(); ++i) {
            int rights = 0;
            if (verbs::allows(batch[i]->rights, verbs::access::remote_read))
                rights |= IBV_ACCESS_REMOTE_READ;
            if (verbs::allows(batch[i]->rights, verbs::access::remote_write))
                rights |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
            errno = 0; // as in add_parts()
            made[i] = ::ibv_reg_mr(p.pd, batch[i]->memory.data(), batch[i]->memory.size(), rights);
            if (made[i] != nullptr)
                continue;
            const int code = errno != 0 ? errno : ENOMEM;
            while (i-- > 0)
                ::ibv_dereg_mr(made[i]);
            return code;
        }
        return 0;
    };
    const int failed = co_await context_.pool().run(std::move(work));
    if (failed != 0) {
        add(context_.counts().registrations_failed, 1);
        co_return registration_error(failed, 0);
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
        memory_grant& g = *grants[i];
        g.region_ = made[i];
        g.part_ = &p;
        g.key_ = made[i]->rkey;
        g.standing_ = true;
        g.keep_ = std::exchange(batch[i]->keep, {});
        batch[i]->made = verbs::grant(*grants[i].release());
    }
    for (const auto* r : batch) {
        auto& g = static_cast<memory_grant&>(*r->made.slot());
        p.grants[g.key_] = &g; // without memory for that, make_grants() drops all
    }
    add(context_.counts().region_grants, batch.size());
    co_return result<void>();
}

task<result<std::unique_ptr<verbs::shared_receive_queue>>>
domain::make_shared_receive_queue(const verbs::shared_receive_queue_options& o)
{
    if (!context_.query().shared_receives)
        co_return error(std::errc::operation_not_supported, "the provider has no shared receive queues");
    if (o.supply != nullptr)
        co_return error(std::errc::operation_not_supported,
                        "a device's receives stand before they are needed");
    auto number = co_await any_part();
    if (!number)
        co_return number.error();
    const device::use hold(part(*number).on); // it may be removed while this waits
    if (part(*number).on.gone())
        co_return error(std::errc::no_such_device, "the device was removed");
    // Half of a completion queue is for Sends.
    const ibv_device_attr& most = part(*number).on.limits().attributes;
    if (o.depth > static_cast<std::uint32_t>(std::max(std::min(most.max_srq_wr, most.max_cqe / 2), 1)))
        co_return error(std::errc::invalid_argument, "a shared receive queue deeper than the device's",
                        o.depth);
    auto made = std::make_unique<shared_receives>(*this, *number, o.depth);
    auto work = [q = made.get()] { return q->create(); };
    result<void> done = co_await context_.pool().run(std::move(work));
    if (done)
        done = made->settle();
    if (!done)
        co_return done.error();
    co_return std::unique_ptr<verbs::shared_receive_queue>(std::move(made));
}

} // namespace verbena::rdma
