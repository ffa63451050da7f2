// SPDX-License-Identifier: Apache-2.0
// error as a module.
#include "../filter_metrics.hpp"

#include <verbena/plugins/error.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/module.hpp>

namespace verbena::filters {

namespace {

class error_module final : public storage::filter_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::list(
                "operations",
                "Which may fail: names of operations, all, metadata, changes, sync; all unless one is "
                "written"),
            setting::text("code", "EIO",
                          "What they are answered with: an errno name, or delayed (try later)"),
            setting::number("per_million", {0, 1'000'000}, 0, "How many of them fail by chance"),
            setting::number("every", {0, INT64_MAX}, 0, "Each so many-th of them fails; 0: none"),
            setting::number("seed", {0, INT64_MAX}, 1, "Of chance"),
            setting::text("while_exists", "", "They fail only while this file exists"),
        };
    }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)operations_of(values, name);
        if (!code_of(values, name))
            throw config_error(values.place("code"), name + ": the code must be an error");
        if (values.number("per_million") != 0 && values.number("every") != 0)
            throw config_error(values.place("every"),
                               name + ": per_million and every are two ways to choose: leave one out");
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        const std::string name = context.name + ": filter error";
        error_options o;
        o.operations = operations_of(values, name);
        o.code = code_of(values, name);
        o.probability = static_cast<double>(values.number("per_million")) / 1'000'000;
        o.every = values.number("every");
        o.seed = values.number("seed");
        o.while_exists = values.text("while_exists");
        auto made = open_error(std::move(on.files), o, context.lane);
        if (!made)
            refuse(name, made.error());
        const error_filter* filter = made->get();
        on.files = std::move(*made);
        on.metrics.push_back(
            expose_outcomes(context.metrics, context.label, "verbena_error_operations_total",
                            "Operations that the filter error might have failed, by whether it did.", 2,
                            [filter](const auto& add) {
                                const error_counters c = filter->counters();
                                add("failed", c.injected);
                                add("passed", c.candidates - std::min(c.injected, c.candidates));
                            }));
    }

private:
    static storage::operation_set operations_of(const setting_values& values, const std::string& name)
    {
        const auto& words = values.list("operations");
        if (words.empty())
            return storage::operation_set::all();
        storage::operation_set all;
        for (std::size_t i = 0; i < words.size(); ++i) {
            const auto parsed = storage::parse_operations(words[i]);
            if (!parsed)
                throw config_error(values.place("operations", i), name + ": " + parsed.error().message());
            all |= *parsed;
        }
        return all;
    }
    static std::error_code code_of(const setting_values& values, const std::string& name)
    {
        const auto parsed = parse_error(values.text("code"));
        if (!parsed)
            throw config_error(values.place("code"), name + ": " + parsed.error().message());
        return *parsed;
    }
};

} // namespace

} // namespace verbena::filters

const verbena::module_descriptor verbena::modules::error = {
    .name = "error",
    .version = VERBENA_VERSION,
    .summary = "operations fail, as on a bad disk",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<filters::error_module>(); },
};
