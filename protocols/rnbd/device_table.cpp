// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/server.hpp>

#include <algorithm>

namespace verbena::rnbd {

device_table::device_table() : slots_(std::make_unique<std::atomic<device*>[]>(max_devices)) {}

device_table::~device_table()
{
    for (std::size_t i = 0; i < size(); ++i)
        delete slots_[i].load(std::memory_order_relaxed);
}

result<std::size_t> device_table::add(device_options o)
{
    if (o.name.empty() || o.name.size() > max_device_name || o.name.find('\0') != o.name.npos)
        return error(std::errc::invalid_argument, "a device's name has 1 to 254 bytes, none of which is zero",
                     o.name.size());
    if (find(o.name))
        return error(std::errc::file_exists, "two devices of one name");
    const std::size_t n = size();
    std::size_t number = 0;
    while (number < n && at(number).name != o.name)
        ++number;
    if (number == max_devices)
        return error(std::errc::invalid_argument, "more devices than a table holds", max_devices);
    auto options = std::make_unique<const device_options>(std::move(o));
    if (number == n) {
        auto made = std::make_unique<device>();
        made->options.store(options.get(), std::memory_order_release);
        made->all.push_back(std::move(options));
        slots_[n].store(made.release(), std::memory_order_release);
        size_.store(n + 1, std::memory_order_release);
        return n;
    }
    // One that was removed is back. What had it open refers to the number.
    device& d = slot(number);
    const std::lock_guard lock(mutex_);
    if (d.open.writers + d.open.readers != 0)
        return error(std::errc::device_or_resource_busy, "a removed device of this name is still in use");
    if (d.all.size() == max_changes)
        return error(std::errc::invalid_argument, "more changes of a device than a table holds", max_changes);
    d.all.push_back(std::move(options));
    d.options.store(d.all.back().get(), std::memory_order_release);
    d.is_removed.store(false, std::memory_order_release);
    return number;
}

result<void> device_table::change(std::size_t i, device_options o)
{
    device& d = slot(i);
    if (o.name != at(i).name || o.backend != at(i).backend)
        return error(std::errc::invalid_argument, "another device than that of this number");
    if (d.all.size() == max_changes)
        return error(std::errc::invalid_argument, "more changes of a device than a table holds", max_changes);
    d.all.push_back(std::make_unique<const device_options>(std::move(o)));
    const std::lock_guard lock(mutex_);
    d.options.store(d.all.back().get(), std::memory_order_release);
    return {};
}

void device_table::remove(std::size_t i) noexcept
{
    const std::lock_guard lock(mutex_);
    slot(i).is_removed.store(true, std::memory_order_release);
}

std::optional<std::size_t> device_table::find(std::string_view name) const noexcept
{
    return first([name](const device_options& o) { return o.name == name; });
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
    return first([&](const device_options& o) { return rnbd::admits(o.clients, address, host); }).has_value();
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
    return first([&](const device_options& o) { return admits(o, who, host).has_value(); }).has_value();
}

result<std::size_t> device_table::open(std::string_view name, access_mode mode, const rtrs::session_info& who,
                                       host_addresses& host)
{
    const auto none = [] { return error(std::errc::no_such_file_or_directory, "no device of this name"); };
    const auto found = find(name);
    if (!found)
        return none();
    if (const auto admitted = admits(at(*found), who, host); !admitted)
        return admitted.error();
    const std::lock_guard lock(mutex_);
    // It may have been removed or changed meanwhile: who does so has the lock, and looks at what is open behind it.
    if (is_removed(*found))
        return none();
    const device_options& o = at(*found);
    if (mode != access_mode::read_only && (o.read_only || o.backend->properties().read_only))
        return error(std::errc::read_only_file_system, "the device is read-only");
    users& open = slot(*found).open;
    if (mode == access_mode::read_only) {
        ++open.readers;
    } else {
        if (open.writers >= (mode == access_mode::migration ? 2u : 1u))
            return error(std::errc::operation_not_permitted, "the device is open for writing already",
                         open.writers);
        ++open.writers;
    }
    return *found;
}

void device_table::close(std::size_t i, access_mode mode) noexcept
{
    const std::lock_guard lock(mutex_);
    users& open = slot(i).open;
    --(mode == access_mode::read_only ? open.readers : open.writers);
}

device_table::users device_table::users_of(std::size_t i) const noexcept
{
    const std::lock_guard lock(mutex_);
    return slot(i).open;
}

} // namespace verbena::rnbd
