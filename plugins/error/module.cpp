// SPDX-License-Identifier: Apache-2.0
// error as a module.
#include "../filter_metrics.hpp"

#include <verbena/plugins/error.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/module.hpp>

namespace verbena::filters {

namespace {

std::vector<setting> settings_of(const char* operations, const char* code)
{
    return {
        setting::list("operations", operations),
        setting::text("code", "EIO", code),
        setting::number("per_million", {0, 1'000'000}, 0, "How many of them fail by chance"),
        setting::number("every", {0, INT64_MAX}, 0, "Each so many-th of them fails; 0: none"),
        setting::number("seed", {0, INT64_MAX}, 1, "Of chance"),
        setting::text("while_exists", "", "They fail only while this file exists"),
    };
}

// All if none is written.
template<class Set>
Set operations_of(const setting_values& values, const std::string& name,
                  result<Set> (*parse)(std::string_view))
{
    const auto& words = values.list("operations");
    if (words.empty())
        return Set::all();
    Set all;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const auto parsed = parse(words[i]);
        if (!parsed)
            throw config_error(values.place("operations", i), name + ": " + parsed.error().message());
        all |= *parsed;
    }
    return all;
}

std::error_code code_of(const setting_values& values, const std::string& name)
{
    const auto parsed = parse_error(values.text("code"));
    if (!parsed)
        throw config_error(values.place("code"), name + ": " + parsed.error().message());
    return *parsed;
}

void read_choice(error_choice& o, const setting_values& values, const std::string& name)
{
    if (values.number("per_million") != 0 && values.number("every") != 0)
        throw config_error(values.place("every"),
                           name + ": per_million and every are two ways to choose: leave one out");
    o.probability = static_cast<double>(values.number("per_million")) / 1'000'000;
    o.every = values.number("every");
    o.seed = values.number("seed");
    o.while_exists = values.text("while_exists");
}

error_options options_of(const setting_values& values, const std::string& name)
{
    error_options o;
    o.operations = operations_of(values, name, &storage::parse_operations);
    o.code = code_of(values, name);
    if (!o.code)
        throw config_error(values.place("code"), name + ": the code must be an error");
    read_choice(o, values, name);
    return o;
}

block_error_options block_options_of(const setting_values& values, const std::string& name)
{
    block_error_options o;
    o.operations = operations_of(values, name, &storage::parse_block_operations);
    o.half = values.flag("half");
    o.stall = std::chrono::milliseconds(values.number("stall_milliseconds"));
    if (values.text("code") == "none") {
        o.code = {};
        if (o.stall == duration::zero())
            throw config_error(values.place("code"), name +
                                                         ": code = \"none\" lets everything succeed: write "
                                                         "stall_milliseconds, or an error");
    } else {
        o.code = code_of(values, name);
        if (o.code == storage::errc::delayed)
            throw config_error(values.place("code"),
                               name + ": block devices have no \"try later\": take an error, as EIO");
    }
    read_choice(o, values, name);
    return o;
}

metric_registry::registration expose_errors(const filtered& of, const char* name, const char* help,
                                            const auto* filter)
{
    return expose_outcomes(of, name, help, 2, [filter](const auto& add) {
        const error_counters c = filter->counters();
        add("failed", c.injected);
        add("passed", c.candidates - std::min(c.injected, c.candidates));
    });
}

class error_on_devices final : public storage::block_filter {
public:
    std::vector<setting> settings() const override
    {
        auto all =
            settings_of("Which may fail: read, write, flush, discard, write_zeroes, all, changes, sync; "
                        "all unless one is written",
                        "What they are answered with: an errno name, or none for a stall alone");
        all.push_back(
            setting::flag("half", false, "The first half of their blocks is done before they fail"));
        all.push_back(
            setting::number("stall_milliseconds", {0, 3'600'000}, 0, "How long they take before they fail"));
        return all;
    }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)block_options_of(values, name);
    }
    void put_on(storage::opened_block& on, const setting_values& values,
                const storage::open_block_context& context) override
    {
        const std::string name = context.name + ": filter error";
        auto made = open_error(std::move(on.device), block_options_of(values, name), context.lane);
        if (!made)
            refuse(name, made.error());
        const block_error_filter* filter = made->get();
        on.device = std::move(*made);
        on.metrics.push_back(expose_errors(
            {context.metrics, "device", context.label}, "verbena_block_error_operations_total",
            "Operations of devices that the filter error might have failed, by whether it did.", filter));
    }
};

class error_module final : public storage::filter_module {
public:
    std::vector<setting> settings() const override
    {
        return settings_of(
            "Which may fail: names of operations, all, metadata, changes, sync; all unless one "
            "is written",
            "What they are answered with: an errno name, or delayed (try later)");
    }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)options_of(values, name);
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        const std::string name = context.name + ": filter error";
        auto made = open_error(std::move(on.files), options_of(values, name), context.lane);
        if (!made)
            refuse(name, made.error());
        const error_filter* filter = made->get();
        on.files = std::move(*made);
        on.metrics.push_back(
            expose_errors({context.metrics, "export", context.label}, "verbena_error_operations_total",
                          "Operations that the filter error might have failed, by whether it did.", filter));
    }
    storage::block_filter* for_blocks() noexcept override { return &on_devices_; }

private:
    error_on_devices on_devices_;
};

} // namespace

} // namespace verbena::filters

const verbena::module_descriptor verbena::modules::error = {
    .name = "error",
    .version = VERBENA_VERSION,
    .summary = "operations fail, as on a bad disk",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<filters::error_module>(); },
};
