// SPDX-License-Identifier: Apache-2.0
#include "steering.hpp"

#include "queue_pair.hpp"

#include <cerrno>
#include <random>
#include <sys/random.h>

namespace verbena::iwarp {

steering_grant::steering_grant(domain& d, std::span<std::byte> memory, verbs::access rights,
                               const void* scope)
    : domain_(d), memory_(memory), rights_(rights), scope_(scope)
{
    stag_ = d.table().insert(*this);
    if (memory.size() >= iwarp::domain::bulk && verbs::allows(rights, verbs::access::remote_write))
        ++d.bulk_grants;
}

steering_grant::~steering_grant() { revoke(); }

verbs::remote_segment steering_grant::where() const noexcept
{
    // The tagged offset is the address: any value would do, and this one reads well in a capture.
    return {stag_, static_cast<std::uint32_t>(memory_.size()),
            reinterpret_cast<std::uint64_t>(memory_.data())};
}

void steering_grant::revoke() noexcept
{
    if (stag_ == 0)
        return;
    const std::uint32_t stag = std::exchange(stag_, 0);
    domain_.table().erase(stag);
    if (memory_.size() >= iwarp::domain::bulk && verbs::allows(rights_, verbs::access::remote_write))
        --domain_.bulk_grants;
    // Bytes of this memory may be queued for a socket that was full. They can't be recalled, so the
    // connection goes (RFC 8166 4.4.1: if it cannot fence, it closes).
    for (std::size_t i = 0; i < domain_.responding.size();) {
        connection* c = domain_.responding[i];
        if (c->owes(stag))
            c->kill(error(std::errc::operation_canceled, "grant revoked while the peer was reading it"));
        if (i < domain_.responding.size() && domain_.responding[i] == c)
            ++i;
    }
}

steering_table::steering_table() : slots_(64) {}

std::uint32_t steering_table::random() noexcept
{
    if (entropy_left_ == 0) {
        std::size_t have = 0;
        while (have < sizeof entropy_) {
            const auto n =
                ::getrandom(reinterpret_cast<char*>(entropy_.data()) + have, sizeof entropy_ - have, 0);
            if (n > 0)
                have += static_cast<std::size_t>(n);
            else if (errno != EINTR)
                break;
        }
        if (have < sizeof entropy_) { // no getrandom: std::random_device reads the same pool by a file
            std::random_device device;
            for (auto& word : entropy_)
                word = device();
        }
        entropy_left_ = entropy_.size();
    }
    return entropy_[--entropy_left_];
}

void steering_table::grow()
{
    std::vector<slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const slot& s : old) {
        if (s.stag == 0)
            continue;
        std::size_t i = home(s.stag);
        while (slots_[i].stag != 0)
            i = (i + 1) & (slots_.size() - 1);
        slots_[i] = s;
    }
}

std::uint32_t steering_table::fresh_tag() noexcept
{
    for (;;) {
        const std::uint32_t tag = random();
        if (tag != 0 && find(tag) == nullptr)
            return tag;
    }
}

std::uint32_t steering_table::insert(steering_grant& g)
{
    if (count_ * 2 >= slots_.size())
        grow();
    for (;;) {
        const std::uint32_t stag = random();
        if (stag == 0)
            continue;
        std::size_t i = home(stag);
        while (slots_[i].stag != 0 && slots_[i].stag != stag)
            i = (i + 1) & (slots_.size() - 1);
        if (slots_[i].stag == stag)
            continue;
        slots_[i] = {stag, &g};
        ++count_;
        return stag;
    }
}

void steering_table::erase(std::uint32_t stag) noexcept
{
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = home(stag);
    while (slots_[i].stag != stag) {
        if (slots_[i].stag == 0)
            return;
        i = (i + 1) & mask;
    }
    --count_;
    // Close the gap, so that no search ends early.
    for (std::size_t j = (i + 1) & mask; slots_[j].stag != 0; j = (j + 1) & mask) {
        const std::size_t wanted = home(slots_[j].stag);
        if (((j - wanted) & mask) >= ((j - i) & mask)) {
            slots_[i] = slots_[j];
            i = j;
        }
    }
    slots_[i] = {};
}

steering_grant* steering_table::find(std::uint32_t stag) const noexcept
{
    if (stag == 0)
        return nullptr;
    for (std::size_t i = home(stag); slots_[i].stag != 0; i = (i + 1) & (slots_.size() - 1)) {
        if (slots_[i].stag == stag)
            return slots_[i].grant;
    }
    return nullptr;
}

steering_check steering_table::check(std::uint32_t stag, std::uint64_t offset, std::uint64_t size,
                                     verbs::access want, const domain& d, const void* scope,
                                     bool read_source) const noexcept
{
    steering_check c;
    const auto refuse = [&](const wire::terminate_code& rdmap, const wire::terminate_code& ddp,
                            const char* rule) {
        c.fault = read_source ? rdmap : ddp;
        c.rule = rule;
        return c;
    };
    steering_grant* g = find(stag);
    if (g == nullptr)
        return refuse(wire::remote_invalid_stag, wire::ddp_invalid_stag, "steering tag is not valid");
    if (&g->domain_ != &d || (g->scope_ != nullptr && g->scope_ != scope))
        return refuse(wire::remote_not_associated, wire::ddp_not_associated,
                      "steering tag belongs to another connection");
    if (!verbs::allows(g->rights_, want))
        return refuse(wire::remote_access, wire::remote_access, "steering tag does not allow this access");
    if (offset > ~size)
        return refuse(wire::remote_wrap, wire::ddp_wrap, "tagged offset wraps");
    const auto base = reinterpret_cast<std::uint64_t>(g->memory_.data());
    if (offset < base || offset - base > g->memory_.size() || size > g->memory_.size() - (offset - base))
        return refuse(wire::remote_bounds, wire::ddp_bounds, "range lies outside the steering tag's memory");
    c.address = g->memory_.data() + (offset - base);
    c.grant = g;
    return c;
}

bool steering_table::invalidate(std::uint32_t stag, const domain& d, const void* scope) noexcept
{
    steering_grant* g = find(stag);
    if (g == nullptr || &g->domain_ != &d || (g->scope_ != nullptr && g->scope_ != scope))
        return false;
    g->revoke();
    return true;
}

result<std::unique_ptr<verbs::grant>> domain::make_grant(std::span<std::byte> memory, verbs::access rights,
                                                         verbs::queue_pair* scope)
{
    if (memory.size() > 0xffffffff)
        return error(std::errc::invalid_argument, "a grant covers less than 4 GiB", memory.size());
    return std::unique_ptr<verbs::grant>(new steering_grant(*this, memory, rights, scope));
}

namespace {
// Software placement needs no pinning: registration only gives the interface its object.
class plain_region final : public verbs::region {
public:
    std::uint32_t local_key() const noexcept override { return 0; }
};
} // namespace

result<std::unique_ptr<verbs::region>> domain::register_memory(std::span<std::byte>)
{
    return std::unique_ptr<verbs::region>(std::make_unique<plain_region>());
}

} // namespace verbena::iwarp
