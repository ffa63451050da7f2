// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/nsswitch_groups.hpp>

#include "nsswitch_lookup.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <grp.h>
#include <pwd.h>

namespace verbena::nfs {

namespace {

// As many as setgroups(2) takes.
constexpr int most_listed = 65536;

struct account_of {
    std::string name;
    gid_t gid = 0;
};

result<std::optional<std::vector<std::uint32_t>>> groups_of(std::uint32_t uid)
{
    const auto found = v4::detail::look_up<account_of, passwd>(
        [uid](auto... rest) { return ::getpwuid_r(uid, rest...); },
        [](const passwd& p) { return account_of{p.pw_name, p.pw_gid}; });
    if (!found)
        return found.error();
    if (!*found)
        return std::optional<std::vector<std::uint32_t>>();
    int count = 128;
    std::vector<std::uint32_t> groups(static_cast<std::size_t>(count));
    while (::getgrouplist((*found)->name.c_str(), (*found)->gid, groups.data(), &count) < 0) {
        // It says how many there are; more may come before it is asked again.
        const int room = static_cast<int>(groups.size());
        if (room >= most_listed)
            return error(std::errc::result_out_of_range, "a user in more than 65536 groups");
        count = std::min(std::max(count, 2 * room), most_listed);
        groups.resize(static_cast<std::size_t>(count));
    }
    groups.resize(static_cast<std::size_t>(count));
    return std::optional<std::vector<std::uint32_t>>(std::move(groups));
}

} // namespace

task<result<std::optional<std::vector<std::uint32_t>>>> nsswitch_groups::find_groups(std::uint32_t uid)
{
    auto job = [uid] { return groups_of(uid); };
    co_return co_await lane_.run(std::move(job));
}

} // namespace verbena::nfs
