// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/server.hpp>

#include <algorithm>

namespace verbena::rnbd {

result<void> device_table::add(device_options o)
{
    if (o.name.empty() || o.name.size() > max_device_name || o.name.find('\0') != o.name.npos)
        return error(std::errc::invalid_argument, "a device's name has 1 to 254 bytes, none of which is zero",
                     o.name.size());
    if (devices_.size() == max_devices)
        return error(std::errc::invalid_argument, "more devices than a table holds", max_devices);
    if (std::ranges::any_of(devices_, [&](const auto& d) { return d->options.name == o.name; }))
        return error(std::errc::file_exists, "two devices of one name");
    devices_.push_back(std::make_unique<device>());
    devices_.back()->options = std::move(o);
    return {};
}

namespace {

bool admits(const client_list& clients, std::string_view from, host_addresses& host)
{
    if (clients.everybody())
        return true;
    const auto address = ip_address::parse(from);
    return address && clients.admits(*address, host);
}

} // namespace

bool device_table::admits(std::string_view address, host_addresses& host) const
{
    return std::ranges::any_of(
        devices_, [&](const auto& d) { return rnbd::admits(d->options.clients, address, host); });
}

result<void> device_table::admits(const device_options& o, const rtrs::session_info& who,
                                  host_addresses& host)
{
    if (!rnbd::admits(o.clients, who.peer_address, host))
        return error(std::errc::permission_denied, "the device is not for this client's address");
    if (!o.session.empty() && o.session != who.name)
        return error(std::errc::permission_denied, "the device is not for sessions of this name");
    return {};
}

bool device_table::admits(const rtrs::session_info& who, host_addresses& host) const
{
    return std::ranges::any_of(devices_,
                               [&](const auto& d) { return admits(d->options, who, host).has_value(); });
}

result<std::size_t> device_table::open(std::string_view name, access_mode mode, const rtrs::session_info& who,
                                       host_addresses& host)
{
    const auto found = std::ranges::find_if(devices_, [&](const auto& d) { return d->options.name == name; });
    if (found == devices_.end())
        return error(std::errc::no_such_file_or_directory, "no device of this name");
    const device_options& o = (*found)->options;
    if (const auto admitted = admits(o, who, host); !admitted)
        return admitted.error();
    if (mode != access_mode::read_only && (o.read_only || o.backend->properties().read_only))
        return error(std::errc::read_only_file_system, "the device is read-only");
    const std::lock_guard lock(mutex_);
    users& open = (*found)->open;
    if (mode == access_mode::read_only) {
        ++open.readers;
    } else {
        if (open.writers >= (mode == access_mode::migration ? 2u : 1u))
            return error(std::errc::operation_not_permitted, "the device is open for writing already",
                         open.writers);
        ++open.writers;
    }
    return static_cast<std::size_t>(found - devices_.begin());
}

void device_table::close(std::size_t i, access_mode mode) noexcept
{
    const std::lock_guard lock(mutex_);
    users& open = devices_[i]->open;
    --(mode == access_mode::read_only ? open.readers : open.writers);
}

device_table::users device_table::users_of(std::size_t i) const noexcept
{
    const std::lock_guard lock(mutex_);
    return devices_[i]->open;
}

} // namespace verbena::rnbd
