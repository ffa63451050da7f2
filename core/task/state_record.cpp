// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/state_record.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/reactor/reactor.hpp>

#include <new>

namespace verbena::detail {
namespace {
log_limiter illegal_transitions_logged;
} // namespace

state_record::state_record(reactor& shard, const char* machine, const state_rule* rules,
                           std::uint8_t first) noexcept
    : shard_(shard), machine_(machine), rules_(rules), now_(first), since_(shard.now())
{
    shard.named_states().push_back(*this);
}

bool state_record::go(std::uint8_t next, const char* why) noexcept
{
    if ((rules_[now_].next >> next & 1) == 0) {
        refuse(next, why);
        return false;
    }
    note(next, why, false);
    now_ = next;
    since_ = shard_.now();
    return true;
}

void state_record::note(std::uint8_t next, const char* why, bool refused) noexcept
{
    ring_[count_++ % kept] = {shard_.now(), why, now_, next, refused};
}

void state_record::refuse(std::uint8_t next, const char* why) noexcept
{
    note(next, why, true);
    shard_.count_illegal_transition();
    try {
        log_limited(illegal_transitions_logged, log_level::error, "core",
                    "a state may not follow another one, so it does not; please report this",
                    {{"object", machine_}, {"from", name(now_)}, {"to", name(next)}, {"why", why}});
    } catch (const std::bad_alloc&) { // it is counted and kept all the same
    }
}

} // namespace verbena::detail
