// SPDX-License-Identifier: Apache-2.0
#include "texts.hpp"

#include "facts.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <utility>

namespace verbena::cli {

namespace {

template<class F>
void each_line(std::string_view text, F f)
{
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        f(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

std::vector<std::string_view> words_of_line(std::string_view line)
{
    std::vector<std::string_view> all;
    for (;;) {
        const std::size_t begin = line.find_first_not_of(" \t");
        if (begin == std::string_view::npos)
            return all;
        line.remove_prefix(begin);
        const std::size_t end = std::min(line.find_first_of(" \t"), line.size());
        all.push_back(line.substr(0, end));
        line.remove_prefix(end);
    }
}

std::optional<std::uint64_t> number_of(std::string_view text, int base = 10)
{
    std::uint64_t n = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n, base);
    if (failed != std::errc() || end != text.data() + text.size())
        return {};
    return n;
}

std::uint64_t limit_of_text(std::string_view text)
{
    return text == "infinity" || text == "unlimited" ? no_limit : number_of(text).value_or(0);
}

// Names as systemd writes them: "cap_setuid".
std::uint64_t capabilities_of(std::string_view text)
{
    // include/uapi/linux/capability.h, in its order.
    constexpr std::array<std::string_view, 41> names = {"chown",
                                                        "dac_override",
                                                        "dac_read_search",
                                                        "fowner",
                                                        "fsetid",
                                                        "kill",
                                                        "setgid",
                                                        "setuid",
                                                        "setpcap",
                                                        "linux_immutable",
                                                        "net_bind_service",
                                                        "net_broadcast",
                                                        "net_admin",
                                                        "net_raw",
                                                        "ipc_lock",
                                                        "ipc_owner",
                                                        "sys_module",
                                                        "sys_rawio",
                                                        "sys_chroot",
                                                        "sys_ptrace",
                                                        "sys_pacct",
                                                        "sys_admin",
                                                        "sys_boot",
                                                        "sys_nice",
                                                        "sys_resource",
                                                        "sys_time",
                                                        "sys_tty_config",
                                                        "mknod",
                                                        "lease",
                                                        "audit_write",
                                                        "audit_control",
                                                        "setfcap",
                                                        "mac_override",
                                                        "mac_admin",
                                                        "syslog",
                                                        "wake_alarm",
                                                        "block_suspend",
                                                        "audit_read",
                                                        "perfmon",
                                                        "bpf",
                                                        "checkpoint_restore"};
    constexpr std::string_view prefix = "cap_";
    std::uint64_t bits = 0;
    for (std::string_view word : words_of_line(text)) {
        if (word.starts_with(prefix))
            word.remove_prefix(prefix.size());
        const auto* const found = std::ranges::find(names, word);
        if (found != names.end())
            bits |= std::uint64_t(1) << (found - names.begin());
    }
    return bits;
}

// "{ path=/usr/bin/verbenad ; argv[]=/usr/bin/verbenad serve FILE ; ignore_errors=no ; ... }"
std::vector<std::string> command_of(std::string_view text)
{
    constexpr std::string_view key = "argv[]=";
    const std::size_t begin = text.find(key);
    if (begin == std::string_view::npos)
        return {};
    text.remove_prefix(begin + key.size());
    std::vector<std::string> all;
    for (const std::string_view word : words_of_line(text.substr(0, text.find(" ;"))))
        all.emplace_back(word);
    return all;
}

} // namespace

std::vector<listening_socket> listening_sockets(std::string_view table)
{
    constexpr std::string_view listens = "0A"; // TCP_LISTEN
    std::vector<listening_socket> all;
    each_line(table, [&](std::string_view line) {
        // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
        const auto words = words_of_line(line);
        if (words.size() < 10 || words[3] != listens)
            return;
        const std::size_t colon = words[1].rfind(':');
        if (colon == std::string_view::npos)
            return;
        const auto port = number_of(words[1].substr(colon + 1), 16);
        const auto inode = number_of(words[9]);
        if (!port || *port > UINT16_MAX || !inode)
            return;
        listening_socket s;
        s.port = static_cast<std::uint16_t>(*port);
        s.address = words[1].substr(0, colon);
        s.is_wildcard = s.address.find_first_not_of('0') == std::string::npos;
        s.inode = *inode;
        all.push_back(std::move(s));
    });
    return all;
}

std::string in_socket_table(std::string_view address)
{
    const std::string text(address.substr(0, address.find('%')));
    std::array<std::uint32_t, 4> words{};
    std::size_t count = 0;
    if (::inet_pton(AF_INET, text.c_str(), words.data()) == 1)
        count = 1;
    else if (::inet_pton(AF_INET6, text.c_str(), words.data()) == 1)
        count = words.size();
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
        // Each four octets are a number as this machine has it.
        constexpr std::string_view digits = "0123456789ABCDEF";
        for (int shift = 28; shift >= 0; shift -= 4)
            out += digits[words[i] >> shift & 15];
    }
    return out;
}

unit_facts parse_unit(std::string_view name, std::string_view shown)
{
    unit_facts u;
    u.name = name;
    each_line(shown, [&](std::string_view line) {
        const std::size_t equals = line.find('=');
        if (equals == std::string_view::npos)
            return;
        const std::string_view key = line.substr(0, equals);
        const std::string_view value = line.substr(equals + 1);
        if (key == "LoadState") {
            u.is_loaded = value == "loaded";
        } else if (key == "ExecStart" && u.command.empty()) {
            u.command = command_of(value);
        } else if (key == "User") {
            u.user = value;
        } else if (key == "WorkingDirectory") {
            u.working_directory = value;
        } else if (key == "StateDirectory") {
            const auto words = words_of_line(value);
            u.state_directory = words.empty() ? "" : words.front().substr(0, words.front().find(':'));
        } else if (key == "LimitNOFILE") {
            u.descriptors = limit_of_text(value);
        } else if (key == "LimitMEMLOCK") {
            u.locked_memory = limit_of_text(value);
        } else if (key == "CapabilityBoundingSet") {
            u.bounding = capabilities_of(value);
        } else if (key == "AmbientCapabilities") {
            u.ambient = capabilities_of(value);
        } else if (key == "RequiresMountsFor") {
            for (const std::string_view path : words_of_line(value))
                u.mounts_wanted.emplace_back(path);
        }
    });
    return u;
}

std::uint64_t limit_in(std::string_view limits, std::string_view what)
{
    std::uint64_t limit = 0;
    each_line(limits, [&](std::string_view line) {
        if (!line.starts_with(what))
            return;
        const auto words = words_of_line(line.substr(what.size()));
        if (!words.empty())
            limit = limit_of_text(words.front());
    });
    return limit;
}

std::string mounted_at(std::string_view mounts, std::string_view device)
{
    std::string where;
    each_line(mounts, [&](std::string_view line) {
        // ID, parent, major:minor, root, where
        const auto words = words_of_line(line);
        if (where.empty() && words.size() > 4 && words[2] == device)
            where = words[4];
    });
    return where;
}

bool is_swap(std::string_view swaps, std::string_view path)
{
    bool found = false;
    each_line(swaps, [&](std::string_view line) {
        // path, type, size...
        const auto words = words_of_line(line);
        found |= words.size() > 1 && words[0] == path;
    });
    return found;
}

bool is_open_to_write(std::string_view fdinfo)
{
    unsigned long flags = 0;
    each_line(fdinfo, [&](std::string_view line) {
        const auto words = words_of_line(line);
        if (words.size() == 2 && words[0] == "flags:")
            (void)std::from_chars(words[1].data(), words[1].data() + words[1].size(), flags, 8);
    });
    return (flags & O_ACCMODE) != O_RDONLY;
}

} // namespace verbena::cli
