// SPDX-License-Identifier: Apache-2.0
#include "identity.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

constexpr std::uint64_t bit(int capability) noexcept { return std::uint64_t(1) << capability; }

// What makes a thread more than its fsuid towards files: CAP_FS_SET of the kernel. CAP_SYS_RESOURCE, with which quotas
// and reserved blocks don't bind, goes apart from these, from root too.
constexpr std::uint64_t file_capabilities = bit(CAP_CHOWN) | bit(CAP_DAC_OVERRIDE) |
                                            bit(CAP_DAC_READ_SEARCH) | bit(CAP_FOWNER) | bit(CAP_FSETID) |
                                            bit(CAP_MKNOD) | bit(CAP_LINUX_IMMUTABLE) | bit(CAP_MAC_OVERRIDE);

bool read_capabilities(std::uint64_t& effective, std::uint64_t& permitted) noexcept
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (::syscall(SYS_capget, &header, data) != 0)
        return false;
    effective = data[0].effective | std::uint64_t(data[1].effective) << 32;
    permitted = data[0].permitted | std::uint64_t(data[1].permitted) << 32;
    return true;
}

bool set_effective(std::uint64_t effective, std::uint64_t permitted) noexcept
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    data[0].effective = std::uint32_t(effective);
    data[1].effective = std::uint32_t(effective >> 32);
    data[0].permitted = std::uint32_t(permitted);
    data[1].permitted = std::uint32_t(permitted >> 32);
    return ::syscall(SYS_capset, &header, data) == 0;
}

// What the kernel shows for an id that has no number in this user namespace: of whom, can't be told.
std::uint32_t unknown_id(const char* path)
{
    std::uint32_t id = 65534;
    std::ifstream(path) >> id;
    return id;
}

} // namespace

result<void> give_up_resource_rights() noexcept
{
    std::uint64_t effective = 0;
    std::uint64_t permitted = 0;
    if (!read_capabilities(effective, permitted))
        return error(std::errc::operation_not_permitted, "capget");
    if ((effective & bit(CAP_SYS_RESOURCE)) != 0 &&
        !set_effective(effective & ~bit(CAP_SYS_RESOURCE), permitted))
        return error(std::errc::operation_not_permitted, "capset");
    return {};
}

capabilities::capabilities() noexcept
{
    read_capabilities(effective_, permitted_);
    uid_ = ::geteuid();
    gid_ = ::getegid();
    auto has = [this](int c) { return (effective_ & bit(c)) != 0; };
    switch_user = has(CAP_SETUID) && has(CAP_SETGID);
    open_handles = has(CAP_DAC_READ_SEARCH);
    override_mode = has(CAP_DAC_OVERRIDE);
    change_owners = has(CAP_CHOWN) && has(CAP_FOWNER);
    lease = has(CAP_LEASE);
    lends = !switch_user && (uid_ == 0 || (effective_ & file_capabilities) != 0);
    explicit_ = uid_ != 0 || (::prctl(PR_GET_SECUREBITS) & SECBIT_NO_SETUID_FIXUP) != 0;
}

const capabilities& capabilities::get() noexcept
{
    static const capabilities instance;
    return instance;
}

bool takes_callers_rights() noexcept { return capabilities::get().switch_user; }
bool lends_its_rights() noexcept { return capabilities::get().lends; }

std::string capabilities::missing() const
{
    struct named {
        int capability;
        const char* name;
    };
    static constexpr std::array<named, 8> wanted{{{CAP_SETUID, "CAP_SETUID"},
                                                  {CAP_SETGID, "CAP_SETGID"},
                                                  {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
                                                  {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
                                                  {CAP_CHOWN, "CAP_CHOWN"},
                                                  {CAP_FOWNER, "CAP_FOWNER"},
                                                  {CAP_FSETID, "CAP_FSETID"},
                                                  {CAP_MKNOD, "CAP_MKNOD"}}};
    std::string text;
    for (const named& n : wanted) {
        if ((effective_ & bit(n.capability)) == 0)
            text += (text.empty() ? "" : " ") + std::string(n.name);
    }
    return text;
}

std::uint64_t capabilities::of_caller(std::uint32_t uid) const noexcept
{
    const std::uint64_t lost = explicit_ && uid != 0 ? file_capabilities : 0;
    return effective_ & ~(lost | bit(CAP_SYS_RESOURCE));
}

namespace {

/// The rights of a thread whose credentials nobody has changed yet, read from the kernel.
class first_rights {
public:
    first_rights()
    {
        std::uint64_t permitted = 0;
        known_ = read_capabilities(effective_, permitted);
        // An impossible id changes nothing, not even the kernel's record of the credentials.
        uid_ = std::uint32_t(::syscall(SYS_setfsuid, -1));
        gid_ = std::uint32_t(::syscall(SYS_setfsgid, -1));
        const int n = ::getgroups(int(groups_.size()), groups_.data());
        // More than a caller can have are nobody's.
        known_ = known_ && n >= 0;
        const auto end = groups_.begin() + std::max(n, 0);
        static const std::uint32_t unknown_user = unknown_id("/proc/sys/kernel/overflowuid");
        static const std::uint32_t unknown_group = unknown_id("/proc/sys/kernel/overflowgid");
        if (uid_ == unknown_user || gid_ == unknown_group ||
            std::find(groups_.begin(), end, unknown_group) != end)
            known_ = false;
        std::sort(groups_.begin(), end);
        count_ = std::size_t(std::remove(groups_.begin(), std::unique(groups_.begin(), end), gid_) -
                             groups_.begin());
    }

    /// The kernel looks for a group in fsgid and in the list, whose order and repeats mean nothing.
    bool are_those_of(const storage::credential& who, const capabilities& own,
                      std::uint32_t own_uid) const noexcept
    {
        if (!known_ || uid_ != own_uid || uid_ != who.uid || gid_ != who.gid ||
            effective_ != own.of_caller(who.uid))
            return false;
        std::size_t matched = 0;
        for (const std::uint32_t group : who.groups()) {
            if (group == gid_)
                continue;
            if (matched == count_ || groups_[matched] != group)
                return false;
            ++matched;
        }
        return matched == count_;
    }

private:
    bool known_ = false;
    std::uint32_t uid_ = 0;
    std::uint32_t gid_ = 0;
    std::uint64_t effective_ = 0;
    std::array<gid_t, storage::credential::max_groups + 1> groups_{}; ///< sorted, without gid_
    std::size_t count_ = 0;
};

} // namespace

/// What the kernel has for this thread. This is not a request's context: it mirrors a property of the
/// thread, so that a switch to what it has already costs nothing.
class thread_identity final : public deferred {
public:
    static thread_identity& mine() noexcept
    {
        static thread_local thread_identity instance;
        return instance;
    }

    result<void> become(const storage::credential& who, reactor* shard) noexcept
    {
        const capabilities& own = capabilities::get();
        if (!own.switch_user)
            return {};
        if ((is_caller_ && who_ == who) || has_rights_of(who))
            return {};
        start();
        if (is_caller_ && own.explicit_ &&
            !set_effective(own.effective_ & ~bit(CAP_SYS_RESOURCE), own.permitted_))
            return lost("capset");
        is_caller_ = true;
        // Groups first: should a later step fail, the thread is never root with somebody's groups forgotten.
        if (!groups_known_ || !has_same_groups(who_, who)) {
            groups_known_ = false;
            const auto groups = who.groups();
            if (::syscall(SYS_setgroups, groups.size(), groups.data()) != 0)
                return lost("setgroups");
            groups_known_ = true;
        }
        // Both calls fail silently; asking again with an impossible id tells what they did.
        if (!group_known_ || who_.gid != who.gid) {
            group_known_ = false;
            ::syscall(SYS_setfsgid, who.gid);
            if (std::uint32_t(::syscall(SYS_setfsgid, -1)) != who.gid)
                return lost("setfsgid");
            group_known_ = true;
        }
        if (fsuid_ != who.uid) {
            ::syscall(SYS_setfsuid, who.uid);
            fsuid_ = std::uint32_t(::syscall(SYS_setfsuid, -1));
            if (fsuid_ != who.uid)
                return lost("setfsuid");
        }
        if (own.explicit_ && who.uid != 0 && !set_effective(own.of_caller(who.uid), own.permitted_))
            return lost("capset");
        who_ = who;
        if (shard != nullptr)
            shard->at_turn_end(*this);
        return {};
    }

    void become_daemon() noexcept
    {
        if (!is_caller_)
            return;
        const capabilities& own = capabilities::get();
        if (fsuid_ != own.uid_)
            ::syscall(SYS_setfsuid, own.uid_);
        fsuid_ = own.uid_;
        if (own.explicit_)
            set_effective(own.effective_ & ~bit(CAP_SYS_RESOURCE), own.permitted_);
        is_caller_ = false;
        unlink();
    }

    void run() noexcept override { become_daemon(); }

    bool has_rights_of(const storage::credential& who) const noexcept
    {
        const capabilities& own = capabilities::get();
        return !started_ && first_.are_those_of(who, own, own.uid_);
    }

private:
    // CAP_SYS_RESOURCE goes for good on threads that serve callers.
    void start() noexcept
    {
        if (started_)
            return;
        started_ = true;
        fsuid_ = std::uint32_t(::syscall(SYS_setfsuid, -1));
        (void)give_up_resource_rights();
    }
    result<void> lost(const char* call) noexcept
    {
        groups_known_ = false;
        group_known_ = false;
        become_daemon();
        return error(std::errc::operation_not_permitted, call);
    }

    const first_rights first_;
    bool started_ = false; ///< credentials were changed, if only once
    bool is_caller_ = false;
    bool groups_known_ = false;
    bool group_known_ = false;
    std::uint32_t fsuid_ = 0; ///< the kernel's, once started
    storage::credential who_;
};

result<void> act_as(const storage::credential& who, reactor* shard) noexcept
{
    return thread_identity::mine().become(who, shard);
}

bool has_rights_of(const storage::credential& who) noexcept
{
    return thread_identity::mine().has_rights_of(who);
}

void act_as_daemon() noexcept { thread_identity::mine().become_daemon(); }

bool may(int fd, int wanted) noexcept
{
    return ::syscall(SYS_faccessat2, fd, "", wanted, AT_EACCESS | AT_EMPTY_PATH) == 0;
}

} // namespace verbena::posixfs
