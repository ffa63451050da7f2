// SPDX-License-Identifier: Apache-2.0
#include "wanted.hpp"

#include "../../device_choice.hpp"
#include <verbena/core/byte_size.hpp>
#include <verbena/core/net/net.hpp>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <variant>

namespace verbena::cli {

namespace {

using tables = setting_values::value::tables;

// Nothing: it is not there, or has another form.
template<class T>
const T* get_if(const setting_values* from, std::string_view name)
{
    const setting_values::value* const v = from == nullptr ? nullptr : from->find(name);
    return v == nullptr ? nullptr : std::get_if<T>(&v->data);
}

const setting_values* table_in(const setting_values* from, std::string_view name)
{
    const tables* const all = get_if<tables>(from, name);
    return all == nullptr || all->empty() ? nullptr : &all->front();
}

const setting_values* table_in(const setting_values* from, std::string_view name, std::size_t i)
{
    const tables* const all = get_if<tables>(from, name);
    return all == nullptr || i >= all->size() ? nullptr : &(*all)[i];
}

std::string text_in(const setting_values* from, std::string_view name, std::string_view otherwise = {})
{
    const std::string* const text = get_if<std::string>(from, name);
    return text == nullptr ? std::string(otherwise) : *text;
}

bool flag_in(const setting_values* from, std::string_view name)
{
    const bool* const flag = get_if<bool>(from, name);
    return flag != nullptr && *flag;
}

std::optional<std::uint64_t> number_in(const setting_values* from, std::string_view name)
{
    const std::int64_t* const number = get_if<std::int64_t>(from, name);
    return number == nullptr || *number < 0 ? std::nullopt : std::optional(std::uint64_t(*number));
}

// "FILE:LINE" of "FILE:LINE:COLUMN: ".
std::string line_of(const setting_place& where)
{
    std::string text = where.text;
    text.erase(text.find_last_not_of(": ") + 1);
    const std::size_t colon = text.rfind(':');
    return colon == std::string::npos ? text : text.substr(0, colon);
}

// Where `written`, which has the table that it is of, has it.
setting_at at(std::string_view table, std::string_view name, const setting_values* written,
              const std::string& file, std::optional<std::size_t> of_list = {})
{
    setting_at s{std::string(table) + '.' + std::string(name), {}};
    if (written != nullptr) {
        const setting_values::value* const v = written->find(name);
        if (v != nullptr && of_list && *of_list < v->element_places.size())
            s.place = line_of(v->element_places[*of_list]);
        else
            s.place = line_of(v != nullptr ? v->place : written->place());
    }
    if (s.place.empty())
        s.place = file;
    return s;
}

std::string absolute_in(const std::string& folder, const std::string& path)
{
    return path.empty() ? path : (std::filesystem::path(folder) / path).lexically_normal().string();
}

std::optional<wanted_listener> listener_of(std::string_view text, setting_at where)
{
    const std::size_t scheme = text.find("://");
    if (scheme == std::string_view::npos)
        return {};
    wanted_listener l;
    l.scheme = text.substr(0, scheme);
    l.url_is = std::move(where);
    std::string_view rest = text.substr(scheme + 3);
    if (const std::size_t mark = rest.find('?'); mark != std::string_view::npos) {
        constexpr std::string_view key = "device=";
        const std::string_view query = rest.substr(mark + 1);
        const auto chosen =
            query.starts_with(key) ? parse_device_choice(query.substr(key.size())) : std::nullopt;
        if (chosen) {
            l.device = chosen->name;
            l.device_port = chosen->port;
        }
        rest = rest.substr(0, mark);
    }
    // Port 0 takes a free one, which the splitter takes for none.
    const bool any_port = rest.ends_with(":0");
    if (any_port)
        rest.remove_suffix(2);
    const auto split = net::split_host_port(rest, any_port ? 1 : 0);
    if (!split)
        return {};
    l.host = split->host;
    l.port = any_port ? 0 : split->port;
    return l;
}

void add_listeners(wanted_host& to, const std::string& protocol, const setting_values& effective,
                   const setting_values* written)
{
    const auto* const urls = get_if<setting_values::value::texts>(&effective, "listen");
    for (std::size_t i = 0; urls != nullptr && i < urls->size(); ++i) {
        if (auto l = listener_of((*urls)[i], at(protocol, "listen", written, to.file, i)))
            to.listeners.push_back(std::move(*l));
    }
}

void add_exports(wanted_host& to, const setting_values& effective, const setting_values* written,
                 const std::string& folder)
{
    const tables* const all = get_if<tables>(&effective, "export");
    for (std::size_t i = 0; all != nullptr && i < all->size(); ++i) {
        const setting_values* const e = &(*all)[i];
        const setting_values* const there = table_in(written, "export", i);
        const std::string directory = text_in(e, "directory");
        if (text_in(e, "backend", "posixfs") != "posixfs" || directory.empty())
            continue;
        wanted_export one;
        one.pseudo = text_in(e, "pseudo");
        one.directory = absolute_in(folder, directory);
        one.mount_at = absolute_in(folder, text_in(e, "mountpoint_at"));
        const bool elsewhere = !one.mount_at.empty();
        if (one.mount_at.empty() && flag_in(e, "mountpoint"))
            one.mount_at = one.directory;
        one.handles = text_in(e, "handles", "auto");
        one.read_only = flag_in(e, "read_only");
        one.directory_is = at("nfs.export", "directory", there, to.file);
        one.mount_is = at("nfs.export", elsewhere ? "mountpoint_at" : "mountpoint", there, to.file);
        one.handles_are = at("nfs.export", "handles", there, to.file);
        to.exports.push_back(std::move(one));
    }
}

void add_devices(wanted_host& to, const setting_values& effective, const setting_values* written,
                 const std::string& folder)
{
    const tables* const all = get_if<tables>(&effective, "device");
    for (std::size_t i = 0; all != nullptr && i < all->size(); ++i) {
        const setting_values* const d = &(*all)[i];
        const setting_values* const there = table_in(written, "device", i);
        const std::string path = text_in(d, "path");
        if (text_in(d, "backend", "fileblk") != "fileblk" || path.empty())
            continue;
        wanted_device one;
        one.name = text_in(d, "name");
        one.path = absolute_in(folder, path);
        one.size = parse_byte_size(text_in(d, "size"));
        one.block_size = std::max<std::uint64_t>(number_in(d, "block_size").value_or(512), 1);
        one.read_only = flag_in(d, "read_only");
        one.path_is = at("block.device", "path", there, to.file);
        one.size_is = at("block.device", "size", there, to.file);
        to.devices.push_back(std::move(one));
    }
}

} // namespace

std::string wanted_listener::text() const
{
    const bool brackets = host.find(':') != std::string::npos;
    std::string text = scheme + "://" + (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
    if (!device.empty())
        text += "?device=" + device_choice{device, device_port}.text();
    return text;
}

wanted_host what_is_wanted(const setting_values& effective, const setting_values& written,
                           const std::string& file, const std::string& folder)
{
    wanted_host to;
    to.file = file;
    for (const auto& [name, value] : effective.all()) {
        const auto* const own = std::get_if<tables>(&value.data);
        if (own == nullptr || own->empty() || !value.is_table || name == "daemon" || name == "metrics" ||
            name == "memory")
            continue;
        add_listeners(to, name, own->front(), table_in(&written, name));
    }
    const setting_values* const metrics = table_in(&effective, "metrics");
    if (const std::string where = text_in(metrics, "listen"); !where.empty() && where != "off") {
        if (auto l =
                listener_of("http://" + where, at("metrics", "listen", table_in(&written, "metrics"), file)))
            to.listeners.push_back(std::move(*l));
    }
    const setting_values* const nfs = table_in(&effective, "nfs");
    if (nfs != nullptr)
        add_exports(to, *nfs, table_in(&written, "nfs"), folder);
    if (const setting_values* const block = table_in(&effective, "block"); block != nullptr)
        add_devices(to, *block, table_in(&written, "block"), folder);
    const setting_values* const daemon = table_in(&effective, "daemon");
    const setting_values* const said = table_in(&written, "daemon");
    if (nfs != nullptr) {
        to.state = absolute_in(folder, text_in(daemon, "state"));
        const auto* const versions = get_if<setting_values::value::texts>(nfs, "versions");
        to.recovers = versions == nullptr ||
                      std::ranges::any_of(*versions, [](const std::string& v) { return v.starts_with('4'); });
    }
    to.state_is = at("daemon", "state", said, file);
    to.memory_mib = number_in(daemon, "memory_mib").value_or(512);
    to.memory_is = at("daemon", "memory_mib", said, file);
    to.connections = number_in(daemon, "connections");
    to.connections_are = at("daemon", "connections", said, file);
    return to;
}

} // namespace verbena::cli
