// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/nsswitch_names.hpp>

#include "nsswitch_lookup.hpp"

#include <array>
#include <cerrno>
#include <memory>

#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <unistd.h>

namespace verbena::nfs::v4 {

namespace {

result<std::optional<std::uint32_t>> id_of(account_kind kind, const char* name)
{
    if (kind == account_kind::user)
        return detail::look_up<std::uint32_t, passwd>(
            [name](auto... rest) { return ::getpwnam_r(name, rest...); },
            [](const passwd& p) { return static_cast<std::uint32_t>(p.pw_uid); });
    return detail::look_up<std::uint32_t, group>(
        [name](auto... rest) { return ::getgrnam_r(name, rest...); },
        [](const group& g) { return static_cast<std::uint32_t>(g.gr_gid); });
}

result<std::optional<std::string>> name_of(account who)
{
    if (who.kind == account_kind::user)
        return detail::look_up<std::string, passwd>(
            [who](auto... rest) { return ::getpwuid_r(who.id, rest...); },
            [](const passwd& p) { return std::string(p.pw_name); });
    return detail::look_up<std::string, group>([who](auto... rest) { return ::getgrgid_r(who.id, rest...); },
                                               [](const group& g) { return std::string(g.gr_name); });
}

result<std::string> domain_of_host()
{
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0)
        return error(std::error_code(errno, std::generic_category()), "gethostname");
    std::string name(host.data());
    addrinfo hints{};
    hints.ai_flags = AI_CANONNAME;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failure = ::getaddrinfo(host.data(), nullptr, &hints, &found);
    if (failure == 0) {
        const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, &::freeaddrinfo);
        if (found->ai_canonname != nullptr &&
            std::string_view(found->ai_canonname).find('.') != std::string_view::npos)
            name = found->ai_canonname;
    }
    if (failure != 0 && name.find('.') == std::string::npos && !detail::is_unknown_to_resolver(failure))
        return error(failure == EAI_SYSTEM ? std::error_code(errno, std::generic_category())
                                           : std::make_error_code(std::errc::resource_unavailable_try_again),
                     "the resolver, asked for this host's full name");
    const std::size_t dot = name.find('.');
    return dot == std::string::npos ? std::string() : name.substr(dot + 1);
}

} // namespace

task<result<std::string>> nsswitch_names::domain()
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
