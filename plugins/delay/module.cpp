// SPDX-License-Identifier: Apache-2.0
// delay as a module.
#include "../filter_metrics.hpp"

#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <span>

namespace verbena::filters {

namespace {

constexpr std::uint64_t most_milliseconds = 3'600'000; // longest_delay

// A group of operations, as it is called on an export and on a device.
struct group_name {
    const char* setting;
    const char* operations;
};
constexpr group_name of_exports[] = {
    {"read", "READ"}, {"write", "WRITE"}, {"sync", "COMMIT"}, {"metadata", "every other operation"}};
constexpr group_name of_devices[] = {{"read", "a read"},
                                     {"write", "a write"},
                                     {"flush", "a flush"},
                                     {"discard", "a discard or write of zeroes"}};
using group_names = std::span<const group_name, 4>;

std::vector<setting> settings_of(group_names groups, const char* refused)
{
    std::vector<setting> all;
    for (const auto& [name, what] : groups) {
        const std::string of = name;
        all.push_back(setting::number(of + "_milliseconds", {0, most_milliseconds}, 0,
                                      std::string("How long ") + what + " waits; the least, with a most"));
        all.push_back(
            setting::number(of + "_milliseconds_most", {0, most_milliseconds}, 0, "The most, by chance")
                .optional("the same as the least"));
    }
    all.push_back(setting::number("seed", {0, INT64_MAX}, 1, "Of chance"));
    all.push_back(
        setting::number("waiting", {1, most_delayed}, 65536,
                        std::string("Operations that may wait at once; one more is answered ") + refused));
    return all;
}

delay_range range_of(const setting_values& values, const std::string& of, const std::string& name)
{
    const std::string least = of + "_milliseconds";
    const std::string most = least + "_most";
    delay_range range;
    range.least = std::chrono::milliseconds(values.number(least));
    range.most = values.find(most) != nullptr ? std::chrono::milliseconds(values.number(most)) : range.least;
    if (range.most < range.least)
        throw config_error(values.place(most), name + ": " + most + " is less than " + least +
                                                   ": make it larger, or leave it out");
    return range;
}

delay_options options_of(group_names groups, const setting_values& values, const std::string& name)
{
    delay_options o;
    o.read = range_of(values, groups[0].setting, name);
    o.write = range_of(values, groups[1].setting, name);
    o.sync = range_of(values, groups[2].setting, name);
    o.metadata = range_of(values, groups[3].setting, name);
    o.seed = values.number("seed");
    o.waiting = values.number("waiting");
    return o;
}

metric_registry::registration expose(const filtered& of, const char* name, const char* help,
                                     const auto* filter)
{
    return expose_outcomes(of, name, help, 3, [filter](const auto& add) {
        const delay_counters c = filter->counters();
        add("delayed", c.delayed);
        add("cancelled", c.cancelled);
        add("refused", c.refused);
    });
}

class delay_on_devices final : public storage::block_filter {
public:
    std::vector<setting> settings() const override { return settings_of(of_devices, "EBUSY"); }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)options_of(of_devices, values, name);
    }
    void put_on(storage::opened_block& on, const setting_values& values,
                const storage::open_block_context& context) override
    {
        const std::string name = context.name + ": filter delay";
        auto made = open_delay(std::move(on.device), options_of(of_devices, values, name));
        if (!made)
            refuse(name, made.error());
        const block_delay_filter* filter = made->get();
        on.device = std::move(*made);
        on.metrics.push_back(
            expose({context.metrics, "device", context.label}, "verbena_block_delay_operations_total",
                   "Operations of devices that the filter delay held, by what became of them.", filter));
    }
};

class delay_module final : public storage::filter_module {
public:
    std::vector<setting> settings() const override { return settings_of(of_exports, "\"try later\""); }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)options_of(of_exports, values, name);
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        const std::string name = context.name + ": filter delay";
        auto made = open_delay(std::move(on.files), options_of(of_exports, values, name));
        if (!made)
            refuse(name, made.error());
        const delay_filter* filter = made->get();
        on.files = std::move(*made);
        on.metrics.push_back(
            expose({context.metrics, "export", context.label}, "verbena_delay_operations_total",
                   "Operations that the filter delay held, by what became of them.", filter));
    }
    storage::block_filter* for_blocks() noexcept override { return &on_devices_; }

private:
    delay_on_devices on_devices_;
};

} // namespace

} // namespace verbena::filters

const verbena::module_descriptor verbena::modules::delay = {
    .name = "delay",
    .version = VERBENA_VERSION,
    .summary = "operations take longer, as on a slow disk",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<filters::delay_module>(); },
};
