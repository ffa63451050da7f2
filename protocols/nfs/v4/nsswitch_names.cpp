// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/v4/nsswitch_names.hpp>

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <unistd.h>

namespace verbena::nfs::v4 {

namespace {

constexpr std::size_t first_room = 4096;
// A group's members are all read with it.
constexpr std::size_t most_room = std::size_t(16) << 20;

/// Calls `ask(record, memory, size, &found)`, one of the get*_r functions, with as much memory as it wants, and yields `take(record)`.
template<class Value, class Record, class Ask, class Take>
result<std::optional<Value>> look_up(Ask ask, Take take)
{
    for (std::size_t room = first_room; room <= most_room; room *= 4) {
        std::vector<char> memory(room);
        Record record{};
        Record* found = nullptr;
        errno = 0;
        const int failure = ask(&record, memory.data(), memory.size(), &found);
        if (failure == ERANGE)
            continue;
        if (found != nullptr)
            return std::optional<Value>(take(*found));
        // getpwnam(3): these say that there is none, on some system or other.
        if (failure == 0 || failure == ENOENT || failure == ESRCH || failure == EBADF || failure == EPERM)
            return std::optional<Value>();
        return error(std::error_code(failure, std::generic_category()), "a lookup in nsswitch's sources");
    }
    return error(std::errc::result_out_of_range, "a lookup in nsswitch's sources");
}

result<std::optional<std::uint32_t>> id_of(account_kind kind, const char* name)
{
    if (kind == account_kind::user)
        return look_up<std::uint32_t, passwd>(
            [name](auto... rest) { return ::getpwnam_r(name, rest...); },
            [](const passwd& p) { return static_cast<std::uint32_t>(p.pw_uid); });
    return look_up<std::uint32_t, group>([name](auto... rest) { return ::getgrnam_r(name, rest...); },
                                         [](const group& g) { return static_cast<std::uint32_t>(g.gr_gid); });
}

result<std::optional<std::string>> name_of(account who)
{
    if (who.kind == account_kind::user)
        return look_up<std::string, passwd>([who](auto... rest) { return ::getpwuid_r(who.id, rest...); },
                                            [](const passwd& p) { return std::string(p.pw_name); });
    return look_up<std::string, group>([who](auto... rest) { return ::getgrgid_r(who.id, rest...); },
                                       [](const group& g) { return std::string(g.gr_name); });
}

std::string domain_of_host()
{
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0)
        return {};
    std::string name(host.data());
    addrinfo hints{};
    hints.ai_flags = AI_CANONNAME;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.data(), nullptr, &hints, &found) == 0) {
        const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, &::freeaddrinfo);
        if (found->ai_canonname != nullptr &&
            std::string_view(found->ai_canonname).find('.') != std::string_view::npos)
            name = found->ai_canonname;
    }
    const std::size_t dot = name.find('.');
    return dot == std::string::npos ? std::string() : name.substr(dot + 1);
}

} // namespace

task<std::string> nsswitch_names::domain()
{
    auto job = [] { return domain_of_host(); };
    co_return co_await lane_.run(std::move(job));
}

task<result<std::optional<std::uint32_t>>> nsswitch_names::find_id(account_kind kind, std::string name)
{
    auto job = [kind, &name] { return id_of(kind, name.c_str()); };
    co_return co_await lane_.run(std::move(job));
}

task<result<std::optional<std::string>>> nsswitch_names::find_name(account who)
{
    auto job = [who] { return name_of(who); };
    co_return co_await lane_.run(std::move(job));
}

} // namespace verbena::nfs::v4
