"""Programs that do the main job with a client each: PLANGATE_URL, PLANGATE_API_KEY. They print one line of JSON."""
