# Plans of small models next to baselines, limits that are named, and known styles; the whole sweep is `./dev bench plans`.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
foreach(mode quick patterns)
    add_test(NAME plans_${mode}
        COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/bench/plans.py $<TARGET_FILE:dtplan> ${mode}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(plans_${mode} PROPERTIES LABELS oracle TIMEOUT 300)
endforeach()
