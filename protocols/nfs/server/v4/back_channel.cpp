// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/back_channel.hpp>

#include <verbena/protocols/rpc/auth_sys.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {

std::optional<callback_identity>
callback_identity::choose(std::uint32_t program,
                          const array_view<callback_sec_parms4, max_security_flavours>& allowed)
{
    std::optional<callback_identity> chosen;
    for (const callback_sec_parms4 parms : allowed) {
        const auto flavor = rpc::auth_flavor(parms.cb_secflavor);
        callback_identity made;
        made.program = program;
        made.flavor = flavor;
        if (flavor == rpc::auth_flavor::none) {
            if (!chosen)
                chosen = made;
        } else if (flavor == rpc::auth_flavor::sys) {
            rpc::auth_sys sys;
            sys.stamp = parms.sys_cred.stamp;
            sys.machine_name = parms.sys_cred.machinename;
            sys.uid = parms.sys_cred.uid;
            sys.gid = parms.sys_cred.gid;
            for (const std::uint32_t gid : parms.sys_cred.gids)
                sys.groups[sys.group_count++] = gid;
            xdr::encoder out(made.body);
            encode(out, sys);
            if (!out.ok())
                continue;
            made.body_size = out.size();
            return made;
        }
    }
    return chosen;
}

void back_channel::set_up(std::uint32_t minor, const channel_attrs4& limits)
{
    minor_.store(minor, std::memory_order_relaxed);
    max_request_.store(limits.maxrequestsize, std::memory_order_relaxed);
    slot_count_.store(std::clamp<std::uint32_t>(limits.maxrequests, 1, most_slots),
                      std::memory_order_relaxed);
}

void back_channel::set_identity(const callback_identity& identity)
{
    const std::lock_guard held(lock_);
    identity_ = identity;
}

void back_channel::bind(std::shared_ptr<rpc::reverse_channel> channel, const shard& at, bool calls_alone)
{
    const std::lock_guard held(lock_);
    std::erase_if(ways_,
                  [&](const way& w) { return !w.channel->open() || w.channel.get() == channel.get(); });
    if (ways_.size() == most_ways)
        ways_.erase(ways_.begin());
    ways_.push_back({std::move(channel), &at, calls_alone});
    granted_.store(true, std::memory_order_release);
}

std::optional<back_channel::way> back_channel::bound(const rpc::reverse_channel& channel) const
{
    const std::lock_guard held(lock_);
    const auto found = std::ranges::find_if(ways_, [&](const way& w) { return w.channel.get() == &channel; });
    return found == ways_.end() ? std::nullopt : std::optional(*found);
}

std::optional<back_channel::way> back_channel::find() const
{
    const std::lock_guard held(lock_);
    // What was bound last is what the client thinks good.
    for (auto w = ways_.rbegin(); w != ways_.rend(); ++w)
        if (w->channel->open())
            return *w;
    return std::nullopt;
}

std::optional<callback_identity> back_channel::identity() const
{
    const std::lock_guard held(lock_);
    return identity_;
}

bool back_channel::has_way() const
{
    return std::ranges::any_of(ways_, [](const way& w) { return w.channel->open(); });
}

bool back_channel::is_down() const
{
    if (!was_granted())
        return false;
    const std::lock_guard held(lock_);
    return !has_way();
}

bool back_channel::is_up() const
{
    if (!was_granted() || has_fault())
        return false;
    const std::lock_guard held(lock_);
    return identity_.has_value() && has_way();
}

std::optional<std::uint32_t> back_channel::take_slot()
{
    for (std::uint32_t i = 0; i < slots(); ++i)
        if (!slots_[i].busy) {
            slots_[i].busy = true;
            return i;
        }
    freed.reset();
    return std::nullopt;
}

void back_channel::release_slot(std::uint32_t slot) noexcept
{
    slots_[slot].busy = false;
    freed.set();
}

} // namespace verbena::nfs::v4
