// SPDX-License-Identifier: Apache-2.0
#include "steering.hpp"

#include "random.hpp"

#include <atomic>
#include <cerrno>
#include <random>
#include <sys/random.h>
#include <utility>

namespace verbena::steering {

scope_id new_scope() noexcept
{
    static std::atomic<scope_id> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

grant::grant(table& t, const void* domain, const verbs::grant_request& r, std::uint64_t base, scope_id scope)
    : table_(t),
      domain_(domain),
      memory_(r.memory),
      base_(base),
      rights_(r.rights),
      is_renewable_(r.renewable),
      scope_(scope)
{
    tag_ = t.insert(*this);
}

grant::~grant() { grant::revoke(); }

verbs::remote_segment grant::where() const noexcept
{
    return {tag_, static_cast<std::uint32_t>(memory_.size()), base_};
}

void grant::revoke() noexcept
{
    if (next_ != 0)
        table_.erase(std::exchange(next_, 0));
    is_renewable_ = false;
    unbind();
}

std::uint32_t grant::next_key() noexcept
{
    try {
        if (is_renewable_ && next_ == 0)
            next_ = table_.insert(*this);
    } catch (const std::bad_alloc&) { // then none can be posted
    }
    return next_;
}

void grant::bind() noexcept
{
    if (next_key() == 0)
        return;
    unbind();
    tag_ = std::exchange(next_, 0);
    on_bound();
}

void grant::unbind() noexcept
{
    if (tag_ == 0)
        return;
    const std::uint32_t tag = std::exchange(tag_, 0);
    table_.erase(tag);
    on_revoked(tag);
}

table::table(std::uint64_t seed) : slots_(64), seed_(seed) {}

std::uint32_t table::random() noexcept
{
    if (seed_ != 0)
        return static_cast<std::uint32_t>(next_random(seed_));
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

void table::grow()
{
    std::vector<slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const slot& s : old) {
        if (s.tag == 0)
            continue;
        std::size_t i = home(s.tag);
        while (slots_[i].tag != 0)
            i = (i + 1) & (slots_.size() - 1);
        slots_[i] = s;
    }
}

std::uint32_t table::fresh_tag() noexcept
{
    for (;;) {
        const std::uint32_t tag = random();
        if (tag != 0 && find(tag) == nullptr)
            return tag;
    }
}

std::uint32_t table::insert(grant& g)
{
    if (count_ * 2 >= slots_.size())
        grow();
    for (;;) {
        const std::uint32_t tag = random();
        if (tag == 0)
            continue;
        std::size_t i = home(tag);
        while (slots_[i].tag != 0 && slots_[i].tag != tag)
            i = (i + 1) & (slots_.size() - 1);
        if (slots_[i].tag == tag)
            continue;
        slots_[i] = {tag, &g};
        ++count_;
        return tag;
    }
}

void table::erase(std::uint32_t tag) noexcept
{
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = home(tag);
    while (slots_[i].tag != tag) {
        if (slots_[i].tag == 0)
            return;
        i = (i + 1) & mask;
    }
    --count_;
    // Close the gap, so that no search ends early.
    for (std::size_t j = (i + 1) & mask; slots_[j].tag != 0; j = (j + 1) & mask) {
        const std::size_t wanted = home(slots_[j].tag);
        if (((j - wanted) & mask) >= ((j - i) & mask)) {
            slots_[i] = slots_[j];
            i = j;
        }
    }
    slots_[i] = {};
}

grant* table::find(std::uint32_t tag) const noexcept
{
    if (tag == 0)
        return nullptr;
    for (std::size_t i = home(tag); slots_[i].tag != 0; i = (i + 1) & (slots_.size() - 1)) {
        if (slots_[i].tag == tag)
            return slots_[i].owner;
    }
    return nullptr;
}

finding table::check(std::uint32_t tag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                     const void* domain, scope_id scope) const noexcept
{
    const grant* g = find(tag);
    if (g == nullptr || g->tag_ != tag)
        return {nullptr, fault::invalid_tag, "steering tag is not valid"};
    if (g->domain_ != domain || (g->scope_ != 0 && g->scope_ != scope))
        return {nullptr, fault::not_associated, "steering tag belongs to another connection"};
    if (!verbs::allows(g->rights_, want))
        return {nullptr, fault::access, "steering tag does not allow this access"};
    if (offset > ~size)
        return {nullptr, fault::wrap, "tagged offset wraps"};
    if (offset < g->base_ || offset - g->base_ > g->memory_.size() ||
        size > g->memory_.size() - (offset - g->base_))
        return {nullptr, fault::bounds, "range lies outside the steering tag's memory"};
    return {g->memory_.data() + (offset - g->base_), fault::none, nullptr};
}

bool table::invalidate(std::uint32_t tag, const void* domain, scope_id scope) noexcept
{
    grant* g = find(tag);
    if (g == nullptr || g->tag_ != tag || g->domain_ != domain || (g->scope_ != 0 && g->scope_ != scope))
        return false;
    g->unbind();
    return true;
}

} // namespace verbena::steering
