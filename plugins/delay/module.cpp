// SPDX-License-Identifier: Apache-2.0
// delay as a module.
#include "../filter_metrics.hpp"

#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/module.hpp>

namespace verbena::filters {

namespace {

constexpr std::uint64_t most_milliseconds = 3'600'000; // longest_delay

class delay_module final : public storage::filter_module {
public:
    std::vector<setting> settings() const override
    {
        std::vector<setting> all;
        for (const auto& [name, what] :
             {std::pair("read", "READ"), std::pair("write", "WRITE"), std::pair("sync", "COMMIT"),
              std::pair("metadata", "every other operation")}) {
            const std::string of = name;
            all.push_back(
                setting::number(of + "_milliseconds", {0, most_milliseconds}, 0,
                                std::string("How long ") + what + " waits; the least, with a most"));
            all.push_back(
                setting::number(of + "_milliseconds_most", {0, most_milliseconds}, 0, "The most, by chance")
                    .optional("the same as the least"));
        }
        all.push_back(setting::number("seed", {0, INT64_MAX}, 1, "Of chance"));
        all.push_back(
            setting::number("waiting", {1, most_delayed}, 65536,
                            "Operations that may wait at once; one more is answered \"try later\""));
        return all;
    }
    void check(setting_values& values, const std::string& name) const override
    {
        for (const char* of : {"read", "write", "sync", "metadata"})
            (void)range_of(values, of, name);
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        const std::string name = context.name + ": filter delay";
        delay_options o;
        o.read = range_of(values, "read", name);
        o.write = range_of(values, "write", name);
        o.sync = range_of(values, "sync", name);
        o.metadata = range_of(values, "metadata", name);
        o.seed = values.number("seed");
        o.waiting = values.number("waiting");
        auto made = open_delay(std::move(on.files), o);
        if (!made)
            refuse(name, made.error());
        const delay_filter* filter = made->get();
        on.files = std::move(*made);
        on.metrics.push_back(expose_outcomes(context.metrics, context.label, "verbena_delay_operations_total",
                                             "Operations that the filter delay held, by what became of them.",
                                             3, [filter](const auto& add) {
                                                 const delay_counters c = filter->counters();
                                                 add("delayed", c.delayed);
                                                 add("cancelled", c.cancelled);
                                                 add("refused", c.refused);
                                             }));
    }

private:
    static delay_range range_of(const setting_values& values, const std::string& of, const std::string& name)
    {
        const std::string least = of + "_milliseconds";
        const std::string most = least + "_most";
        delay_range range;
        range.least = std::chrono::milliseconds(values.number(least));
        range.most =
            values.find(most) != nullptr ? std::chrono::milliseconds(values.number(most)) : range.least;
        if (range.most < range.least)
            throw config_error(values.place(most), name + ": " + most + " is less than " + least +
                                                       ": make it larger, or leave it out");
        return range;
    }
};

} // namespace

} // namespace verbena::filters

const verbena::module_descriptor verbena::modules::delay = {
    .name = "delay",
    .version = VERBENA_VERSION,
    .summary = "operations take longer, as on a slow disk",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<filters::delay_module>(); },
};
